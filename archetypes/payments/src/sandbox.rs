//! A place to rehearse in: payments with a processor and a merchant outside, both on loopback, under names
//! that are the same in every run. The story, the simulation and the tests are played here.

use crate::merchant::Receiver;
use crate::processor::{NOTICE_SECRET, Processor};
use crate::{Payments, ProcessorClient};
use anyhow::Result;
use cloud::Cloud;
use reqwest::{ClientBuilder, Url};
use std::net::SocketAddr;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// What the merchant's webhooks are signed with.
pub const SECRET: &str = "whsec_sandbox";

/// Payments, and the world outside.
pub struct Sandbox {
    /// What is rehearsed.
    pub payments: Payments,
    /// `http://processor.test`.
    pub processor: Processor,
    /// `http://shop.test/webhooks`, where the merchant `shop` listens.
    pub merchant: Receiver,
    addresses: Addresses,
    /// They end when it is dropped.
    _servers: JoinSet<()>,
}

type Addresses = Vec<(&'static str, SocketAddr)>;

fn client(addresses: &Addresses) -> ClientBuilder {
    let client = reqwest::Client::builder().no_proxy();
    addresses
        .iter()
        .fold(client, |client, (name, at)| client.resolve(name, *at))
}

fn at(addresses: &Addresses, cloud: &Cloud) -> Result<ProcessorClient> {
    let base = Url::parse("http://processor.test")?;
    let to = ProcessorClient::new(cloud, client(addresses), base, NOTICE_SECRET)?;
    Ok(to)
}

impl Sandbox {
    /// Payments on this cloud, whose tables are there.
    pub async fn open(cloud: Cloud) -> Result<Self> {
        let processor = Processor::new(cloud.clock().clone());
        let merchant = Receiver::new(&[SECRET], cloud.clock().clone());
        let mut servers = JoinSet::new();
        let mut addresses = Vec::new();
        for (name, app) in [
            ("processor.test", processor.app()),
            ("shop.test", merchant.app()),
        ] {
            let listener = TcpListener::bind("127.0.0.1:0").await?;
            addresses.push((name, listener.local_addr()?));
            servers.spawn(async move {
                let _ = axum::serve(listener, app).await;
            });
        }
        let to = at(&addresses, &cloud)?;
        let payments = Payments::new(cloud, to, client(&addresses))?;
        let sandbox = Self {
            payments,
            processor,
            merchant,
            addresses,
            _servers: servers,
        };
        let url = "http://shop.test/webhooks";
        sandbox.beside().set_endpoint("shop", url, SECRET).await?;
        Ok(sandbox)
    }

    /// The same payments, seen by nobody.
    pub fn beside(&self) -> Payments {
        self.payments.on(self.payments.cloud().beside_tap())
    }

    /// A client that knows the names in here.
    pub fn client(&self) -> ClientBuilder {
        client(&self.addresses)
    }

    /// Another client of the processor.
    pub fn processor_client(&self) -> Result<ProcessorClient> {
        at(&self.addresses, self.payments.cloud())
    }
}
