//! Cursor / presence: who is here and where, in Redis, gone by itself when nobody refreshes it.
//!
//! None of it is the document: it may be lost, late or wrong for a moment, and nothing is decided on it. Each
//! person is a key with an expiry of its own; a set says which keys to look at.

use crate::domain::{BadInput, Version, valid_id};
use crate::{DocumentError, DocumentService};
use cloud::CloudError;
use redis::AsyncCommands;
use serde::{Deserialize, Serialize};

/// How long somebody is here without a word. Sessions refresh three times as often.
pub const PRESENT_MS: u64 = 15_000;

/// CursorPresenceState: somebody who has the document open.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Person {
    /// Which window.
    pub client: String,
    /// Who, as they call themselves.
    pub name: String,
    /// The version that the position is in.
    pub version: Version,
    /// Where the cursor is, in characters.
    pub position: usize,
    /// Where the selection began; the position, if nothing is selected.
    pub anchor: usize,
}

impl Person {
    /// Whether it can be shown.
    pub fn validate(&self) -> Result<(), BadInput> {
        valid_id("client id", &self.client)?;
        match self.name.chars().count() {
            1..=60 => Ok(()),
            length => Err(BadInput::Name(length)),
        }
    }
}

impl DocumentService {
    fn person_key(&self, document_id: &str, client: &str) -> String {
        let names = self.cloud.names();
        names.key(&format!("presence:{document_id}:{client}"))
    }

    fn people_key(&self, document_id: &str) -> String {
        self.cloud.names().key(&format!("people:{document_id}"))
    }

    /// Says where somebody is, and that they still are.
    pub async fn update_presence(
        &self,
        document_id: &str,
        person: &Person,
    ) -> Result<(), DocumentError> {
        valid_id("document id", document_id)?;
        person.validate()?;
        let text = serde_json::to_string(person).map_err(CloudError::bug)?;
        let key = self.person_key(document_id, &person.client);
        let mut redis = self.cloud.redis().await.map_err(CloudError::from)?;
        // The key first: who is in the set and has no key is taken for gone.
        let () = redis::pipe()
            .cmd("SET")
            .arg(key)
            .arg(text)
            .arg("PX")
            .arg(PRESENT_MS)
            .sadd(self.people_key(document_id), &person.client)
            .query_async(&mut redis)
            .await
            .map_err(CloudError::from)?;
        Ok(())
    }

    /// Takes somebody away who has left.
    pub async fn remove_presence(
        &self,
        document_id: &str,
        client: &str,
    ) -> Result<(), DocumentError> {
        valid_id("document id", document_id)?;
        valid_id("client id", client)?;
        let mut redis = self.cloud.redis().await.map_err(CloudError::from)?;
        let () = redis::pipe()
            .del(self.person_key(document_id, client))
            .srem(self.people_key(document_id), client)
            .query_async(&mut redis)
            .await
            .map_err(CloudError::from)?;
        Ok(())
    }

    /// Who is here, on every node. Those who went without a word are taken off the list.
    pub async fn people(&self, document_id: &str) -> Result<Vec<Person>, DocumentError> {
        valid_id("document id", document_id)?;
        let mut redis = self.cloud.redis().await.map_err(CloudError::from)?;
        let list = self.people_key(document_id);
        let members: Vec<String> = redis.smembers(&list).await.map_err(CloudError::from)?;
        if members.is_empty() {
            return Ok(Vec::new());
        }
        let keys: Vec<_> = members
            .iter()
            .map(|client| self.person_key(document_id, client))
            .collect();
        let found: Vec<Option<String>> = redis.mget(keys).await.map_err(CloudError::from)?;
        let (mut people, mut gone) = (Vec::new(), Vec::new());
        for (client, text) in members.into_iter().zip(found) {
            match text.and_then(|text| serde_json::from_str(&text).ok()) {
                Some(person) => people.push(person),
                None => gone.push(client),
            }
        }
        if !gone.is_empty() {
            // Somebody who comes back this very moment is off the list until the next refresh.
            let () = redis.srem(&list, gone).await.map_err(CloudError::from)?;
        }
        people.sort_by(|a: &Person, b: &Person| a.client.cmp(&b.client));
        Ok(people)
    }
}
