//! Tables as data: written once, used to create them, to describe them in a README, to remove
//! them again, and to print CloudFormation.

use crate::{Cloud, CloudError};
use aws_sdk_dynamodb::error::ProvideErrorMetadata;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, GlobalSecondaryIndex, KeySchemaElement, KeyType,
    LocalSecondaryIndex, ProvisionedThroughput, ScalarAttributeType, StreamSpecification,
    StreamViewType, TableStatus, TimeToLiveSpecification,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

/// A table.
#[derive(Debug, Clone, Copy)]
pub struct Table {
    /// Name without prefix; three characters or more.
    pub name: &'static str,
    /// The entity it holds, as the documents name it.
    pub entity: &'static str,
    /// Why it is a table of its own and has these keys.
    pub why: &'static str,
    /// The partition key.
    pub partition: Key,
    /// The sort key, if any.
    pub sort: Option<Key>,
    /// Its indexes.
    pub indexes: &'static [Index],
    /// The attribute (epoch seconds) after which DynamoDB may delete an item, within days.
    pub ttl: Option<&'static str>,
    /// What its stream shows, if it has one.
    pub stream: Option<StreamView>,
    /// How it is paid for.
    pub billing: Billing,
    /// Every attribute with a sample value and its reason: together, one sample item.
    pub attributes: &'static [Attribute],
}

/// A key attribute and its type.
#[derive(Debug, Clone, Copy)]
pub enum Key {
    /// A string.
    S(&'static str),
    /// A number.
    N(&'static str),
    /// Bytes.
    B(&'static str),
}

/// A secondary index.
#[derive(Debug, Clone, Copy)]
pub struct Index {
    /// Name; three characters or more.
    pub name: &'static str,
    /// Global or local.
    pub scope: Scope,
    /// The partition key; the table's own if the index is local.
    pub partition: Key,
    /// The sort key, if any.
    pub sort: Option<Key>,
    /// Which attributes it carries.
    pub projection: Projection,
    /// The question it answers.
    pub why: &'static str,
}

/// Where an index lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Partitioned by its own key, eventually consistent.
    Global,
    /// In the table's own partitions: reads can be consistent, a partition key holds 10 GB at most.
    Local,
}

/// Which attributes an index carries.
#[derive(Debug, Clone, Copy)]
pub enum Projection {
    /// The keys of table and index.
    KeysOnly,
    /// The keys and these.
    Include(&'static [&'static str]),
    /// Everything.
    All,
}

/// What the records of a stream show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamView {
    /// Only the key.
    KeysOnly,
    /// The item after the change.
    NewImage,
    /// The item before the change.
    OldImage,
    /// Both.
    NewAndOldImages,
}

/// How a table is paid for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Billing {
    /// By the request.
    OnDemand,
    /// By the provisioned unit and hour.
    Provisioned {
        /// Read units each second.
        read: i64,
        /// Write units each second.
        write: i64,
    },
}

/// An attribute with a sample value and the reason it is there.
#[derive(Debug, Clone, Copy)]
pub struct Attribute {
    /// Its name.
    pub name: &'static str,
    /// A sample value.
    pub sample: &'static str,
    /// Why it is there.
    pub why: &'static str,
}

/// Shorthand for an [`Attribute`], so that a table reads as a table.
pub const fn attribute(name: &'static str, sample: &'static str, why: &'static str) -> Attribute {
    Attribute { name, sample, why }
}

impl Key {
    /// The attribute's name.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::S(name) | Self::N(name) | Self::B(name) => name,
        }
    }

    fn kind(&self) -> ScalarAttributeType {
        match self {
            Self::S(_) => ScalarAttributeType::S,
            Self::N(_) => ScalarAttributeType::N,
            Self::B(_) => ScalarAttributeType::B,
        }
    }
}

impl StreamView {
    fn sdk(self) -> StreamViewType {
        match self {
            Self::KeysOnly => StreamViewType::KeysOnly,
            Self::NewImage => StreamViewType::NewImage,
            Self::OldImage => StreamViewType::OldImage,
            Self::NewAndOldImages => StreamViewType::NewAndOldImages,
        }
    }
}

impl Projection {
    fn sdk(&self) -> aws_sdk_dynamodb::types::Projection {
        use aws_sdk_dynamodb::types::ProjectionType;
        let builder = aws_sdk_dynamodb::types::Projection::builder();
        match self {
            Self::KeysOnly => builder.projection_type(ProjectionType::KeysOnly),
            Self::All => builder.projection_type(ProjectionType::All),
            Self::Include(names) => builder
                .projection_type(ProjectionType::Include)
                .set_non_key_attributes(Some(names.iter().map(ToString::to_string).collect())),
        }
        .build()
    }
}

fn schema(partition: Key, sort: Option<Key>) -> impl Iterator<Item = (Key, KeyType)> {
    std::iter::once((partition, KeyType::Hash)).chain(sort.map(|key| (key, KeyType::Range)))
}

fn sdk_schema(partition: Key, sort: Option<Key>) -> Result<Vec<KeySchemaElement>, CloudError> {
    schema(partition, sort)
        .map(|(key, kind)| {
            KeySchemaElement::builder()
                .attribute_name(key.name())
                .key_type(kind)
                .build()
                .map_err(wrong)
        })
        .collect()
}

fn wrong(error: impl std::fmt::Display) -> CloudError {
    CloudError::Other(error.to_string())
}

impl Table {
    /// The key attributes of table and indexes, each once.
    fn key_attributes(&self) -> BTreeMap<&'static str, Key> {
        let own = schema(self.partition, self.sort).map(|(key, _)| key);
        let indexed = self
            .indexes
            .iter()
            .flat_map(|index| schema(index.partition, index.sort).map(|(key, _)| key));
        own.chain(indexed).map(|key| (key.name(), key)).collect()
    }

    /// The names of the attributes that make an item's key.
    pub fn key_names(&self) -> impl Iterator<Item = &'static str> {
        schema(self.partition, self.sort).map(|(key, _)| key.name())
    }

    fn throughput(&self) -> Result<Option<ProvisionedThroughput>, CloudError> {
        match self.billing {
            Billing::OnDemand => Ok(None),
            Billing::Provisioned { read, write } => ProvisionedThroughput::builder()
                .read_capacity_units(read)
                .write_capacity_units(write)
                .build()
                .map(Some)
                .map_err(wrong),
        }
    }

    async fn create(&self, cloud: &Cloud) -> Result<(), CloudError> {
        let mut request = cloud
            .dynamodb()
            .create_table()
            .table_name(cloud.names().table(self.name))
            .set_key_schema(Some(sdk_schema(self.partition, self.sort)?))
            .set_provisioned_throughput(self.throughput()?)
            .billing_mode(match self.billing {
                Billing::OnDemand => BillingMode::PayPerRequest,
                Billing::Provisioned { .. } => BillingMode::Provisioned,
            });
        for key in self.key_attributes().values() {
            request = request.attribute_definitions(
                AttributeDefinition::builder()
                    .attribute_name(key.name())
                    .attribute_type(key.kind())
                    .build()
                    .map_err(wrong)?,
            );
        }
        for index in self.indexes {
            let keys = sdk_schema(index.partition, index.sort)?;
            request = match index.scope {
                Scope::Global => request.global_secondary_indexes(
                    GlobalSecondaryIndex::builder()
                        .index_name(index.name)
                        .set_key_schema(Some(keys))
                        .projection(index.projection.sdk())
                        .set_provisioned_throughput(self.throughput()?)
                        .build()
                        .map_err(wrong)?,
                ),
                Scope::Local => request.local_secondary_indexes(
                    LocalSecondaryIndex::builder()
                        .index_name(index.name)
                        .set_key_schema(Some(keys))
                        .projection(index.projection.sdk())
                        .build()
                        .map_err(wrong)?,
                ),
            };
        }
        if let Some(view) = self.stream {
            request = request.stream_specification(
                StreamSpecification::builder()
                    .stream_enabled(true)
                    .stream_view_type(view.sdk())
                    .build()
                    .map_err(wrong)?,
            );
        }
        let created = match request.send().await {
            Ok(output) => output.table_description,
            // Somebody was faster, or an earlier run made it: that is what was wanted.
            Err(error) if error.code() == Some("ResourceInUseException") => {
                return self.wait_until_active(cloud).await;
            }
            Err(error) => return Err(error.into()),
        };
        if created.and_then(|table| table.table_status) != Some(TableStatus::Active) {
            self.wait_until_active(cloud).await?;
        }
        if let Some(attribute) = self.ttl {
            cloud
                .dynamodb()
                .update_time_to_live()
                .table_name(cloud.names().table(self.name))
                .time_to_live_specification(
                    TimeToLiveSpecification::builder()
                        .enabled(true)
                        .attribute_name(attribute)
                        .build()
                        .map_err(wrong)?,
                )
                .send()
                .await?;
        }
        Ok(())
    }

    async fn wait_until_active(&self, cloud: &Cloud) -> Result<(), CloudError> {
        loop {
            let described = cloud
                .dynamodb()
                .describe_table()
                .table_name(cloud.names().table(self.name))
                .send()
                .await?;
            let status = described.table.and_then(|table| table.table_status);
            if status == Some(TableStatus::Active) {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }

    /// The resource of this table in a CloudFormation template.
    fn cloudformation(&self) -> Value {
        let keys = |partition, sort| -> Vec<Value> {
            schema(partition, sort)
                .map(|(key, kind)| json!({"AttributeName": key.name(), "KeyType": kind.as_str()}))
                .collect()
        };
        let projection = |projection: &Projection| match projection {
            Projection::KeysOnly => json!({"ProjectionType": "KEYS_ONLY"}),
            Projection::All => json!({"ProjectionType": "ALL"}),
            Projection::Include(names) => {
                json!({"ProjectionType": "INCLUDE", "NonKeyAttributes": names})
            }
        };
        let throughput = match self.billing {
            Billing::OnDemand => None,
            Billing::Provisioned { read, write } => {
                Some(json!({"ReadCapacityUnits": read, "WriteCapacityUnits": write}))
            }
        };
        let indexes = |scope: Scope| -> Vec<Value> {
            let of_scope = self.indexes.iter().filter(|index| index.scope == scope);
            of_scope
                .map(|index| {
                    let mut resource = json!({
                        "IndexName": index.name,
                        "KeySchema": keys(index.partition, index.sort),
                        "Projection": projection(&index.projection),
                    });
                    if let (Scope::Global, Some(units)) = (scope, &throughput) {
                        resource["ProvisionedThroughput"] = units.clone();
                    }
                    resource
                })
                .collect()
        };
        let attributes: Vec<_> = self
            .key_attributes()
            .values()
            .map(|key| json!({"AttributeName": key.name(), "AttributeType": key.kind().as_str()}))
            .collect();
        let mut properties = json!({
            "TableName": {"Fn::Sub": format!("${{Prefix}}{}", self.name)},
            "AttributeDefinitions": attributes,
            "KeySchema": keys(self.partition, self.sort),
            "BillingMode": match self.billing {
                Billing::OnDemand => "PAY_PER_REQUEST",
                Billing::Provisioned { .. } => "PROVISIONED",
            },
        });
        if let Some(units) = &throughput {
            properties["ProvisionedThroughput"] = units.clone();
        }
        for (field, scope) in [
            ("GlobalSecondaryIndexes", Scope::Global),
            ("LocalSecondaryIndexes", Scope::Local),
        ] {
            let list = indexes(scope);
            if !list.is_empty() {
                properties[field] = Value::from(list);
            }
        }
        if let Some(attribute) = self.ttl {
            properties["TimeToLiveSpecification"] =
                json!({"AttributeName": attribute, "Enabled": true});
        }
        if let Some(view) = self.stream {
            properties["StreamSpecification"] = json!({"StreamViewType": view.sdk().as_str()});
        }
        // A stack that is deleted by mistake must not take the data with it.
        json!({"Type": "AWS::DynamoDB::Table", "DeletionPolicy": "Retain", "UpdateReplacePolicy": "Retain", "Properties": properties})
    }

    /// The table as Markdown: keys, indexes, and every attribute with a sample and its reason.
    pub fn markdown(&self) -> String {
        let keys = |partition: Key, sort: Option<Key>| match sort {
            Some(sort) => format!("`{}`, `{}`", partition.name(), sort.name()),
            None => format!("`{}`", partition.name()),
        };
        let mut out = format!("**`{}`**: {}. {}\n\n", self.name, self.entity, self.why);
        let _ = writeln!(out, "- key: {}", keys(self.partition, self.sort));
        for index in self.indexes {
            let _ = writeln!(
                out,
                "- {} index `{}`: {}, {}. {}",
                match index.scope {
                    Scope::Global => "global",
                    Scope::Local => "local",
                },
                index.name,
                keys(index.partition, index.sort),
                match index.projection {
                    Projection::KeysOnly => "keys only".to_owned(),
                    Projection::All => "all attributes".to_owned(),
                    Projection::Include(names) => format!("with `{}`", names.join("`, `")),
                },
                index.why
            );
        }
        if let Some(attribute) = self.ttl {
            let _ = writeln!(out, "- TTL on `{attribute}`");
        }
        if let Some(view) = self.stream {
            let _ = writeln!(out, "- stream: `{}`", view.sdk().as_str());
        }
        out.push_str("\n| attribute | sample | why |\n| --- | --- | --- |\n");
        for attribute in self.attributes {
            let _ = writeln!(
                out,
                "| `{}` | `{}` | {} |",
                attribute.name, attribute.sample, attribute.why
            );
        }
        out
    }
}

/// A CloudFormation template for these tables, as JSON.
pub fn cloudformation(tables: &[Table]) -> Value {
    let resources: serde_json::Map<_, _> = tables
        .iter()
        .map(|table| {
            let words = table.name.split(['-', '_']);
            let id: String = words
                .map(|word| {
                    let (first, rest) = word.split_at(1.min(word.len()));
                    first.to_uppercase() + rest
                })
                .collect();
            (format!("{id}Table"), table.cloudformation())
        })
        .collect();
    json!({
        "AWSTemplateFormatVersion": "2010-09-09",
        "Parameters": {"Prefix": {"Type": "String", "Default": "archetypes-"}},
        "Resources": resources,
    })
}

impl Cloud {
    /// Creates the tables that are not there yet, and waits until they can be used.
    /// Done beside the tap: setting up is not part of any action.
    pub async fn create_tables(&self, tables: &[Table]) -> Result<(), CloudError> {
        let beside = self.beside_tap();
        futures::future::try_join_all(tables.iter().map(|table| table.create(&beside))).await?;
        Ok(())
    }

    /// Removes the tables, if they are there.
    pub async fn delete_tables(&self, tables: &[Table]) -> Result<(), CloudError> {
        let beside = self.beside_tap();
        for table in tables {
            let name = self.names().table(table.name);
            match beside
                .dynamodb()
                .delete_table()
                .table_name(name)
                .send()
                .await
            {
                Ok(_) => {}
                Err(error) if error.code() == Some("ResourceNotFoundException") => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}
