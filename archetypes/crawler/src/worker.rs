//! A worker: receives, claims, does the work in between, and says what came of it. One for fetching, one
//! for parsing; a process has as many as it likes, each with a name of its own, since the name is what a
//! lost answer is recognized by.

use crate::claim_fetch::{ClaimedFetch, FetchRun};
use crate::claim_parse::{ClaimedParse, ParseRun};
use crate::domain::{GRACE_MS, MAX_RETRY_AFTER_MS, MAX_WAITS, TURN_MS, backoff};
use crate::mark_fetched::{After, Fetched, Finish};
use crate::mark_parsed::Parsed;
use crate::page;
use crate::queue::{Message, UrlFrontierState, UrlParseRunState};
use crate::robots::{Asked, aside};
use crate::web::{Answer, NoAnswer, Validators};
use crate::{ATTEMPTS, Crawler, CrawlerError};
use cloud::{CloudError, Millis};
use std::time::Duration;
use url::Url;

/// How soon a worker looks again whether a host's turn is over, and how late at most.
const POLL_MS: Millis = 10;
const MAX_POLL_MS: Millis = 320;

/// How long a host's turn lasts at most, if the host is well.
const YOUNG_MS: Millis = 1_000;

/// How many links are expanded between two looks at the lease.
const EXPANDED_AT_ONCE: usize = 20;

/// What a worker did with a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Worked {
    /// Fetched, and on its way to a parser.
    Fetched,
    /// Parsed, with so many new URLs.
    Parsed {
        /// URLs nobody had come across.
        new: u32,
    },
    /// It did not work out, and is tried again.
    Retrying {
        /// When.
        at: Millis,
    },
    /// Given up, for this reason.
    Failed {
        /// Why.
        reason: String,
    },
    /// Hidden until its time, or its host's, has come.
    TooEarly {
        /// When.
        at: Millis,
    },
    /// Hidden until the lease of whoever has it ends.
    Held,
    /// Nothing to do.
    Echo,
    /// Somebody else took over meanwhile; what this one did counts for nothing.
    Stale,
}

impl Crawler {
    /// Works on one message of the frontier, however often it has been delivered before.
    pub async fn fetch(
        &self,
        message: &Message<UrlFrontierState>,
        owner: &str,
    ) -> Result<Worked, CrawlerError> {
        // As long as this message is hidden, it is nobody else's: what is waited for in place is less.
        let mut patience = self.rules.patience_ms;
        let mut poll = POLL_MS;
        let mut reads = 0;
        loop {
            let mut claimed = self.claim_fetch(message, owner).await?;
            if let ClaimedFetch::NeedsRobots { origin } = &claimed {
                reads += 1;
                match self.fetch_robots(origin, owner).await? {
                    // Known now, unless clocks are a day apart.
                    Asked::Stored if reads < ATTEMPTS => continue,
                    Asked::Stored => {
                        claimed = ClaimedFetch::TooEarly {
                            at: self.now() + GRACE_MS,
                        }
                    }
                    Asked::Later { at } => claimed = ClaimedFetch::TooEarly { at },
                    Asked::Busy { until } => claimed = ClaimedFetch::Busy { until },
                }
            }
            let worked = match claimed {
                ClaimedFetch::Run(run) => match self.fetch_run(&run).await {
                    Ok(worked) => worked,
                    Err(fault) => {
                        self.give_back_fetch(&run, &fault).await;
                        return Err(fault);
                    }
                },
                ClaimedFetch::TooEarly { at } => {
                    let wait = (at - self.now()).max(1);
                    if wait <= patience {
                        patience -= wait;
                        tokio::time::sleep(Duration::from_millis(wait as u64)).await;
                        continue;
                    }
                    self.hide_fetch(message, at).await?;
                    return Ok(Worked::TooEarly { at });
                }
                ClaimedFetch::Busy { until } => {
                    // A turn ends any moment, so look again, less and less often. One that has lasted is at a
                    // slow host, or at one that hangs: it must not have every worker wait for it.
                    let lasted = self.now() - (until - TURN_MS);
                    if lasted < YOUNG_MS && poll <= patience {
                        patience -= poll;
                        tokio::time::sleep(Duration::from_millis(poll as u64)).await;
                        poll = (poll * 2).min(MAX_POLL_MS);
                        continue;
                    }
                    let later = lasted.max(self.rules.delay_ms).max(1_000);
                    let at = until.min(self.now() + later);
                    self.hide_fetch(message, at).await?;
                    return Ok(Worked::TooEarly { at });
                }
                ClaimedFetch::Held { until } => {
                    self.hide_fetch(message, until).await?;
                    return Ok(Worked::Held);
                }
                ClaimedFetch::Echo | ClaimedFetch::NeedsRobots { .. } => Worked::Echo,
                ClaimedFetch::Failed { reason } => Worked::Failed { reason },
            };
            // The message goes last: as long as it is there, nothing is forgotten.
            self.ack_fetch(message).await?;
            return Ok(worked);
        }
    }

    /// Fetches what was claimed, and writes down what came of it.
    pub async fn fetch_run(&self, run: &FetchRun) -> Result<Worked, CrawlerError> {
        if !self.has_time(run.turn_ends_at) {
            // So much time went by since the claim that the request could outlast the turn.
            self.release_turn(&run.host, &run.turn_id, None).await?;
            let ended = self
                .fetch_later(run, "no time left in the turn", self.now())
                .await?;
            return Ok(worked(ended, "no time left in the turn"));
        }
        match self.ask_host(run).await? {
            Ok(answer) => self.fetched(run, answer).await,
            Err(why @ (NoAnswer::Forbidden(_) | NoAnswer::Encoded(_))) => {
                self.given_up(run, &why.to_string()).await
            }
            Err(why) => {
                let why = why.to_string();
                Ok(worked(self.fetch_failed(run, &why).await?, &why))
            }
        }
    }

    /// The request, in the host's turn. The host is free as soon as it is over, whatever came of it.
    pub async fn ask_host(&self, run: &FetchRun) -> Result<Result<Answer, NoAnswer>, CrawlerError> {
        let url = Url::parse(&run.url.url).map_err(CloudError::corrupt)?;
        let validators = match run.url.raw_blob_key {
            Some(_) => Validators {
                etag: run.url.etag.clone(),
                last_modified: run.url.last_modified.clone(),
            },
            None => Validators::default(),
        };
        let most = self.rules.max_body;
        let answer = self.web.get(&url, &validators, most, self.now()).await;
        let asked = answer
            .as_ref()
            .ok()
            .and_then(|answer| self.asked_for(answer));
        let ends_at = run.turn_ends_at;
        let released = self.leave_alone(&run.host, &run.turn_id, ends_at, asked);
        match released.await {
            // The page at least is put off for as long as the host asked.
            Err(fault) if asked.is_some() => {
                eprintln!("{} asks for a pause: {fault}", run.url.origin);
            }
            released => released?,
        }
        Ok(answer)
    }

    /// A fault of the store is none of the page: as far as it can be said, the attempt is not counted.
    /// If it cannot, the lease ends by itself, and the attempt is. The turn was released right after the
    /// request, with the pause that the host asked for, or it ends by itself.
    async fn give_back_fetch(&self, run: &FetchRun, fault: &CrawlerError) {
        if let Some(at) = self.after_fault(run.url.waits, fault) {
            let _ = self.fetch_later(run, &fault.to_string(), at).await;
        }
    }

    async fn give_back_parse(&self, run: &ParseRun, fault: &CrawlerError) {
        if let Some(at) = self.after_fault(run.url.waits, fault) {
            let _ = self.parse_later(run, &fault.to_string(), at).await;
        }
    }

    /// When to try again after a fault below, after pauses that double; none if it is no fault of the
    /// store, or there were enough of them.
    fn after_fault(&self, waits: u32, fault: &CrawlerError) -> Option<Millis> {
        match fault {
            CrawlerError::Fault(CloudError::Corrupt(_)) => None,
            CrawlerError::Fault(_) if waits < MAX_WAITS => Some(self.now() + backoff(waits)),
            _ => None,
        }
    }

    /// How long a host wants to be left alone, if it said so.
    pub(crate) fn asked_for(&self, answer: &Answer) -> Option<Millis> {
        let asked = match answer.status {
            429 => Some(answer.retry_after_ms.unwrap_or(self.rules.busy_ms)),
            503 => answer.retry_after_ms,
            _ => None,
        };
        asked.map(|asked| asked.clamp(1, MAX_RETRY_AFTER_MS))
    }

    async fn given_up(&self, run: &FetchRun, why: &str) -> Result<Worked, CrawlerError> {
        Ok(match self.give_up_fetch(run, why).await? {
            Finish::Done => Worked::Failed {
                reason: why.to_owned(),
            },
            Finish::Stale => Worked::Stale,
        })
    }

    /// What an answer means.
    async fn fetched(&self, run: &FetchRun, answer: Answer) -> Result<Worked, CrawlerError> {
        let now = self.now();
        let status = answer.status;
        let why = format!("status {status}");
        match status {
            200..=299 => {
                if answer.cut {
                    let why = format!("more than {} bytes", self.rules.max_body);
                    return self.given_up(run, &why).await;
                }
                if !self.rules.takes(&answer.content_type) {
                    let why = format!("content type '{}'", answer.content_type);
                    return self.given_up(run, &why).await;
                }
                self.keep(run, answer, None).await
            }
            304 if run.url.raw_blob_key.is_some() => self.unchanged(run, &answer).await,
            301 | 302 | 303 | 307 | 308 => {
                let to = answer.location.clone();
                let base = Url::parse(&run.url.url).map_err(CloudError::corrupt)?;
                match to.map(|to| crate::canonical::link(&base, &to)) {
                    Some(Ok(to)) => self.keep(run, answer, Some(to.as_str().to_owned())).await,
                    Some(Err(wrong)) => self.given_up(run, &format!("{why} to {wrong}")).await,
                    None => self.given_up(run, &format!("{why} to nowhere")).await,
                }
            }
            429 | 503 if self.asked_for(&answer).is_some() => {
                let wait = self.asked_for(&answer).unwrap_or(self.rules.busy_ms);
                Ok(worked(self.fetch_later(run, &why, now + wait).await?, &why))
            }
            408 | 425 | 500..=599 => Ok(worked(self.fetch_failed(run, &why).await?, &why)),
            _ => self.given_up(run, &why).await,
        }
    }

    /// Stores the bytes, marks it FETCHED, and sends it to the parsers.
    async fn keep(
        &self,
        run: &FetchRun,
        answer: Answer,
        redirect_to: Option<String>,
    ) -> Result<Worked, CrawlerError> {
        let hash = &run.url.url_hash;
        let content_type = answer.content_type;
        let (content_hash, raw_blob_key) = self.store_raw(hash, &content_type, answer.body).await?;
        let fetched = Fetched {
            http_status: answer.status,
            content_hash,
            raw_blob_key,
            content_type,
            etag: answer.etag,
            last_modified: answer.last_modified,
            redirect_to,
        };
        self.done(run, &fetched).await
    }

    /// What was stored the last time is still so.
    async fn unchanged(&self, run: &FetchRun, answer: &Answer) -> Result<Worked, CrawlerError> {
        let row = run.url.clone();
        let fetched = Fetched {
            http_status: answer.status,
            content_hash: row.content_hash.unwrap_or_default(),
            raw_blob_key: row.raw_blob_key.unwrap_or_default(),
            content_type: row.content_type.unwrap_or_default(),
            etag: answer.etag.clone().or(row.etag),
            last_modified: answer.last_modified.clone().or(row.last_modified),
            redirect_to: row.redirect_to,
        };
        self.done(run, &fetched).await
    }

    async fn done(&self, run: &FetchRun, fetched: &Fetched) -> Result<Worked, CrawlerError> {
        if self.mark_fetched(run, fetched).await? == Finish::Stale {
            return Ok(Worked::Stale);
        }
        let hash = &run.url.url_hash;
        self.enqueue_parse(hash, &fetched.raw_blob_key).await?;
        Ok(Worked::Fetched)
    }

    /// Works on one message of the parse queue, however often it has been delivered before.
    pub async fn parse(
        &self,
        message: &Message<UrlParseRunState>,
        owner: &str,
    ) -> Result<Worked, CrawlerError> {
        let worked = match self.claim_parse(message, owner).await? {
            ClaimedParse::Run(run) => match self.parse_run((*run).clone()).await {
                Ok(worked) => worked,
                Err(fault) => {
                    self.give_back_parse(&run, &fault).await;
                    return Err(fault);
                }
            },
            ClaimedParse::Held { until } => {
                self.hide_parse(message, until).await?;
                return Ok(Worked::Held);
            }
            ClaimedParse::TooEarly { at } => {
                self.hide_parse(message, at).await?;
                return Ok(Worked::TooEarly { at });
            }
            ClaimedParse::Echo => Worked::Echo,
            ClaimedParse::Failed => Worked::Failed {
                reason: "the parser died, again and again".to_owned(),
            },
        };
        self.ack_parse(message).await?;
        Ok(worked)
    }

    /// Parses what was claimed: text, then links, then the mark.
    pub async fn parse_run(&self, mut run: ParseRun) -> Result<Worked, CrawlerError> {
        let key = run.url.raw_blob_key.clone().unwrap_or_default();
        let Some(body) = self.read_blob(&key).await? else {
            let why = "its bytes are gone";
            return Ok(match self.parse_failed(&run, why).await? {
                Finish::Done => Worked::Failed {
                    reason: why.to_owned(),
                },
                Finish::Stale => Worked::Stale,
            });
        };
        // Two megabytes of tags take a while.
        let row = run.url.clone();
        let page = aside(move || page::read(&row, &body)).await?;
        let text = serde_json::to_vec(&page.text).map_err(CloudError::corrupt)?;
        if !self.keep_parse(&mut run).await? {
            return Ok(Worked::Stale);
        }
        let content_hash = run.url.content_hash.clone().unwrap_or_default();
        let text_key = self.store_text(&content_hash, text).await?;
        let mut new = 0;
        for _ in 0..ATTEMPTS {
            for children in self
                .children(&run.url, &page.links)
                .chunks(EXPANDED_AT_ONCE)
            {
                if !self.keep_parse(&mut run).await? {
                    return Ok(Worked::Stale);
                }
                new += self.expand(children).await?.new;
            }
            let links = page.links.len() as u32;
            match self.mark_parsed(&run, &text_key, links).await? {
                Parsed::Done => return Ok(Worked::Parsed { new }),
                Parsed::Stale => return Ok(Worked::Stale),
                Parsed::Shortened(url) => run.url = *url,
            }
        }
        Err(CrawlerError::Contended)
    }
}

fn worked((finish, after): (Finish, After), why: &str) -> Worked {
    match (finish, after) {
        (Finish::Stale, _) => Worked::Stale,
        (Finish::Done, After::Retry { at }) => Worked::Retrying { at },
        (Finish::Done, After::GiveUp) => Worked::Failed {
            reason: why.to_owned(),
        },
    }
}
