//! Streams events as server-sent events.
//!
//! Publishing never waits for watchers: each reads from the ring at its own pace. One that falls
//! behind is disconnected, and is told when it reconnects that it missed events. The number of
//! watchers is limited, in all and per network.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{Extension, State};
use axum::http::header::{AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderName};
use axum::response::{IntoResponse as _, Response};
use futures_core::Stream;

use super::AdminState;
use super::problem::AdminProblem;
use super::watcher_slots::WatcherSlot;
use crate::events::{Id, PublishedEvent, Received, Watcher};
use crate::listener::connection::Peer;
use crate::tokens::Role;

/// Maximum time without data, so that proxies and clients see that the connection is alive.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// First message: the reconnection delay in milliseconds.
const RECONNECT_DELAY: &str = "retry: 2000\n\n";

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// `GET /admin/events`.
pub(super) async fn events(
    State(state): State<Arc<AdminState>>,
    Extension(Peer(peer)): Extension<Peer>,
    headers: HeaderMap,
) -> Result<Response, AdminProblem> {
    let slot = state.slots.take(peer).ok_or(AdminProblem::TooManyWatchers)?;
    let watcher = state.parts().events.watch(last_event_id(&headers)?);
    // Keep only the token from the request head.
    let token = headers.get(AUTHORIZATION).cloned().map(|token| (AUTHORIZATION, token));
    let headers = token.into_iter().collect();
    let stream = WatcherStream { state, headers, watcher, progress: Progress::NotStarted };
    let body = EventBody { next: Box::pin(stream.next()), _slot: slot };
    let head = [(CONTENT_TYPE, "text/event-stream"), (CACHE_CONTROL, "no-store")];
    Ok((head, Body::from_stream(body)).into_response())
}

/// Returns the event that a reconnecting watcher has seen last.
fn last_event_id(headers: &HeaderMap) -> Result<Option<Id>, AdminProblem> {
    let Some(field) = headers.get(LAST_EVENT_ID) else { return Ok(None) };
    let id = field.to_str().ok().and_then(Id::parse);
    let rule = "must be the id of an event received before";
    id.map(Some).ok_or_else(|| AdminProblem::field("last-event-id", rule))
}

/// Produces the messages for one watcher.
struct WatcherStream {
    state: Arc<AdminState>,
    /// The token, which may be revoked while the stream is open.
    headers: HeaderMap,
    watcher: Watcher,
    progress: Progress,
}

/// Progress of a stream.
#[derive(PartialEq, Eq)]
enum Progress {
    NotStarted,
    /// The first message was sent.
    Greeted,
    /// An event or heartbeat was sent.
    Streaming,
}

impl WatcherStream {
    /// Returns the next message and the state to continue with; `None` at the end of the stream.
    async fn next(mut self) -> Option<(Bytes, Self)> {
        if self.progress == Progress::NotStarted {
            self.progress = Progress::Greeted;
            return Some((Bytes::from_static(RECONNECT_DELAY.as_bytes()), self));
        }
        let message = tokio::select! {
            biased;
            () = self.state.stop.clone().wait() => return None,
            seen = self.watcher.next() => match seen {
                Received::Event(event) => format_event(&event).into(),
                Received::Missed if self.progress == Progress::Greeted => missed_event(),
                // The watcher fell behind.
                Received::Missed => return None,
            },
            () = tokio::time::sleep(HEARTBEAT) => Bytes::from_static(b":\n\n"),
        };
        self.state.parts().tokens.authenticate(&self.headers, Role::Read).ok()?;
        self.progress = Progress::Streaming;
        Some((message, self))
    }
}

fn format_event(event: &PublishedEvent) -> String {
    let PublishedEvent { id, name, data } = event;
    format!("id: {id}\nevent: {name}\ndata: {data}\n\n")
}

/// Tells a reconnecting watcher that events before the following ones are missing.
fn missed_event() -> Bytes {
    Bytes::from_static(b"event: missed\ndata: {}\n\n")
}

type Next = Pin<Box<dyn Future<Output = Option<(Bytes, WatcherStream)>> + Send>>;

/// The response body of a watcher.
struct EventBody {
    next: Next,
    /// Freed with the stream.
    _slot: WatcherSlot,
}

impl Stream for EventBody {
    type Item = Result<Bytes, std::convert::Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Poll::Ready(next) = self.next.as_mut().poll(cx) else { return Poll::Pending };
        let Some((message, stream)) = next else {
            // Polling again returns `None` again.
            self.next = Box::pin(std::future::ready(None));
            return Poll::Ready(None);
        };
        self.next = Box::pin(stream.next());
        Poll::Ready(Some(Ok(message)))
    }
}
