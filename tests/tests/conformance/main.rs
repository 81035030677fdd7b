//! What the archetypes rely on, one test for each behaviour. Whoever points the suite at another
//! backend (`ARCHETYPES_BACKEND=docker` or `aws`) sees here at once where it differs.
//!
//! Each test makes its own keys, queues and buckets and looks at nothing else, because on docker
//! and aws the tables are shared. What AWS promises only eventually is asked for until it comes.
#![allow(clippy::unwrap_used)]

mod dynamodb;
mod redis;
mod s3;
mod sqs;
mod toy;
