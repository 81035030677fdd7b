//! The promises, each as a sentence.
#![allow(clippy::unwrap_used)]

mod web;

use web::*;

#[tokio::test]
async fn a_small_site_is_crawled_to_its_end() {
    let town = small().await;
    town.live(2).await;
    town.small_is_crawled().await.unwrap();
}
