//! A real Chromium, driven over WebDriver.
//!
//! Needs `chromium` and `chromedriver` on the path; Debian has them as `chromium` and `chromium-driver`.
//! Nothing here waits for a time to pass: [`Window::until`] asks the page itself, again and again, until
//! something is true, and gives up after [`PATIENCE`].

use anyhow::{Context, Result, bail};
use fantoccini::wd::TimeoutConfiguration;
use fantoccini::{Client, ClientBuilder, Locator};
use serde_json::{Value, json};
use std::process::Stdio;
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

/// How long anything may take before it counts as never: much longer than it does.
pub const PATIENCE: Duration = Duration::from_secs(90);

/// A chromedriver on a port of its own. When it is dropped it is killed, and its windows with it.
pub struct Browser {
    address: String,
    _driver: Child,
}

impl Browser {
    /// Starts one.
    pub async fn start() -> Result<Self> {
        let mut driver = Command::new("chromedriver")
            .arg("--port=0")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .context("chromedriver does not start: apt-get install chromium chromium-driver")?;
        let output = driver.stdout.take().context("chromedriver has no output")?;
        let mut lines = BufReader::new(output).lines();
        let port = loop {
            let line = lines.next_line().await?;
            let line = line.context("chromedriver ended before it named its port")?;
            if let Some((_, port)) = line.split_once("started successfully on port ") {
                break port.trim_end_matches('.').to_owned();
            }
        };
        // A pipe that nobody reads fills up.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Ok(Self {
            address: format!("http://127.0.0.1:{port}"),
            _driver: driver,
        })
    }

    /// Opens a page in a Chromium of its own, with an empty profile: another person at another machine.
    pub async fn open(&self, url: &str) -> Result<Window> {
        let profile = tempfile::tempdir()?;
        let arguments = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--window-size=1000,700",
            &format!("--user-data-dir={}", profile.path().display()),
        ];
        let wanted = json!({
            "goog:chromeOptions": { "args": arguments },
            "goog:loggingPrefs": { "browser": "ALL" },
        });
        let Value::Object(wanted) = wanted else {
            bail!("capabilities are an object");
        };
        let client = ClientBuilder::new(fantoccini::HttpConnector::new())
            .capabilities(wanted)
            .connect(&self.address)
            .await
            .context("Chromium does not start: apt-get install chromium chromium-driver")?;
        let patient = TimeoutConfiguration::new(Some(PATIENCE), Some(PATIENCE), None);
        client.update_timeouts(patient).await?;
        client.goto(url).await?;
        Ok(Window {
            client,
            _profile: profile,
        })
    }
}

/// One page of one Chromium.
pub struct Window {
    client: Client,
    _profile: TempDir,
}

impl Window {
    /// Waits until an expression of JavaScript is true on the page.
    pub async fn until(&self, condition: &str) -> Result<()> {
        let script = format!(
            "const done = arguments[arguments.length - 1];
             const look = () => ({condition}) ? done(true) : setTimeout(look, 20);
             look();"
        );
        if let Err(error) = self.client.execute_async(&script, Vec::new()).await {
            let shown = self.value("document.body.innerText").await;
            bail!("never came true: {condition} ({error}); the page shows {shown:?}");
        }
        Ok(())
    }

    /// What an expression of JavaScript is on the page.
    pub async fn value(&self, expression: &str) -> Result<Value> {
        let script = format!("return ({expression});");
        Ok(self.client.execute(&script, Vec::new()).await?)
    }

    /// Runs statements of JavaScript on the page.
    pub async fn run(&self, statements: &str) -> Result<()> {
        self.client.execute(statements, Vec::new()).await?;
        Ok(())
    }

    /// Presses these keys, one after the other, in the element that a selector finds.
    pub async fn press(&self, selector: &str, keys: &str) -> Result<()> {
        let element = self.client.find(Locator::Css(selector)).await?;
        Ok(element.send_keys(keys).await?)
    }

    /// Clicks on what a selector finds.
    pub async fn click(&self, selector: &str) -> Result<()> {
        let element = self.client.find(Locator::Css(selector)).await?;
        Ok(element.click().await?)
    }

    /// A picture of the page, as PNG.
    pub async fn picture(&self) -> Result<Vec<u8>> {
        Ok(self.client.screenshot().await?)
    }

    /// Closes it, as a person does: the page gets to know.
    pub async fn close(self) -> Result<()> {
        Ok(self.client.close().await?)
    }
}
