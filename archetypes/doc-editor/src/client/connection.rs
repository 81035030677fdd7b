//! A replica over a real WebSocket.

use super::Replica;
use crate::ot::{Operation, OtError};
use crate::protocol::{FromClient, FromServer};
use futures::{SinkExt, StreamExt};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

/// A replica and, most of the time, its connection. Nothing happens behind its back: it sends and receives
/// while [`Connection::step`] is awaited.
pub struct Connection {
    url: String,
    replica: Replica,
    socket: Option<WebSocketStream<MaybeTlsStream<TcpStream>>>,
}

/// The connection broke, or was never made. Connect again: nothing is lost.
#[derive(Debug, thiserror::Error)]
#[error("no connection: {0}")]
pub struct Disconnected(String);

impl Connection {
    /// A replica for the server at `ws://host:port/socket`, not connected yet.
    pub fn new(url: &str, replica: Replica) -> Self {
        Self {
            url: url.to_owned(),
            replica,
            socket: None,
        }
    }

    /// The replica.
    pub fn replica(&self) -> &Replica {
        &self.replica
    }

    /// Another server, from the next connection on.
    pub fn move_to(&mut self, url: &str) {
        self.hang_up();
        self.url = url.to_owned();
    }

    /// Connects, or connects again, and joins.
    pub async fn connect(&mut self) -> Result<(), Disconnected> {
        let connected = connect_async(&self.url).await;
        let (socket, _) = connected.map_err(|error| Disconnected(error.to_string()))?;
        self.socket = Some(socket);
        self.replica.connected();
        self.flush().await
    }

    /// Breaks the connection as a network does, without a word.
    pub fn hang_up(&mut self) {
        self.socket = None;
        self.replica.disconnected();
    }

    /// Types.
    pub async fn edit(
        &mut self,
        operation: &Operation,
    ) -> Result<Result<(), OtError>, Disconnected> {
        if let Err(wrong) = self.replica.local_edit(operation) {
            return Ok(Err(wrong));
        }
        self.flush().await.map(Ok)
    }

    /// Takes back one's own last edit.
    pub async fn undo(&mut self) -> Result<(), Disconnected> {
        self.replica.undo();
        self.flush().await
    }

    /// Says where the cursor is.
    pub async fn cursor(&mut self, position: usize, anchor: usize) -> Result<(), Disconnected> {
        match self.replica.cursor(position, anchor) {
            Some(message) => self.send(&message).await,
            None => Ok(()),
        }
    }

    /// Waits for one message, takes it in, and sends what follows from it.
    pub async fn step(&mut self) -> Result<FromServer, Disconnected> {
        let Some(socket) = &mut self.socket else {
            return Err(Disconnected("there is none".into()));
        };
        let message = loop {
            match socket.next().await {
                Some(Ok(Message::Text(text))) => break text,
                Some(Ok(Message::Close(_))) | None => {
                    return Err(self.lost("the server closed it".into()));
                }
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(self.lost(error.to_string())),
            }
        };
        let message: FromServer = match serde_json::from_str(&message) {
            Ok(message) => message,
            Err(error) => return Err(self.lost(format!("unreadable: {error}"))),
        };
        self.replica.receive(message.clone());
        self.flush().await?;
        Ok(message)
    }

    /// Steps until the replica is as wished.
    pub async fn until(&mut self, done: impl Fn(&Replica) -> bool) -> Result<(), Disconnected> {
        while !done(&self.replica) {
            self.step().await?;
        }
        Ok(())
    }

    async fn flush(&mut self) -> Result<(), Disconnected> {
        while self.socket.is_some() {
            let Some(message) = self.replica.take_outgoing() else {
                break;
            };
            self.send(&message).await?;
        }
        Ok(())
    }

    async fn send(&mut self, message: &FromClient) -> Result<(), Disconnected> {
        let Some(socket) = &mut self.socket else {
            return Err(Disconnected("there is none".into()));
        };
        let text =
            serde_json::to_string(message).map_err(|error| Disconnected(error.to_string()))?;
        match socket.send(Message::text(text)).await {
            Ok(()) => Ok(()),
            Err(error) => Err(self.lost(error.to_string())),
        }
    }

    fn lost(&mut self, why: String) -> Disconnected {
        self.hang_up();
        Disconnected(why)
    }
}
