//! Watching a machine over a WebSocket.

use crate::api::{WatchInput, Watched};
use crate::connection::{Error, Server, Stream};
use tungstenite::client::IntoClientRequest;
use tungstenite::http::HeaderValue;
use tungstenite::{Message, WebSocket};

/// A machine that is watched. Dropping it ends that.
pub struct Watch {
    socket: WebSocket<Box<dyn Stream>>,
}

fn broken(error: tungstenite::Error) -> Error {
    match error {
        tungstenite::Error::Io(error) => Error::Io(error),
        tungstenite::Error::Http(answer) => Error::Refused {
            status: answer.status().as_u16(),
            code: "http".into(),
            message: format!("the server answered with status {}", answer.status()),
        },
        error => Error::Answer(error.to_string()),
    }
}

impl Watch {
    pub(crate) fn open(server: &Server, token: &str, path: &str) -> Result<Self, Error> {
        let url = format!("ws://{}{path}", server.authority);
        let mut request = url.into_client_request().map_err(broken)?;
        let bearer = HeaderValue::try_from(format!("Bearer {token}"))
            .map_err(|_| Error::Setup("the token has other characters".into()))?;
        request.headers_mut().insert("authorization", bearer);
        let opened = tungstenite::client(request, server.connect()?);
        let (socket, _) = opened.map_err(|error| match error {
            tungstenite::HandshakeError::Failure(error) => broken(error),
            tungstenite::HandshakeError::Interrupted(_) => {
                Error::Io(std::io::ErrorKind::TimedOut.into())
            }
        })?;
        Ok(Self { socket })
    }

    /// The next message; `None` when the server has closed the connection.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn read(&mut self) -> Result<Option<Watched>, Error> {
        loop {
            match self.socket.read() {
                Ok(Message::Text(text)) => {
                    let message = serde_json::from_str(&text);
                    return message.map(Some).map_err(|error| Error::Answer(error.to_string()));
                }
                Ok(Message::Close(_))
                | Err(tungstenite::Error::ConnectionClosed | tungstenite::Error::AlreadyClosed) => {
                    return Ok(None);
                }
                Ok(_) => {}
                Err(error) => return Err(broken(error)),
            }
        }
    }

    /// Sends an input; its answer comes among the messages.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn send(&mut self, input: &WatchInput) -> Result<(), Error> {
        let text = serde_json::to_string(input).map_err(|error| Error::Setup(error.to_string()))?;
        self.socket.send(Message::text(text)).map_err(broken)
    }
}
