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

use super::Open;
use super::problem::AdminProblem;
use super::seats::Seat;
use crate::events::{Id, Seen, Told, Watcher};
use crate::listener::connection::Peer;
use crate::tokens::Role;

/// Maximum time without data, so that proxies and clients see that the connection is alive.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// First message: the reconnection delay in milliseconds.
const GREETING: &str = "retry: 2000\n\n";

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// `GET /admin/events`.
pub(super) async fn events(
    State(open): State<Arc<Open>>,
    Extension(Peer(peer)): Extension<Peer>,
    headers: HeaderMap,
) -> Result<Response, AdminProblem> {
    let seat = open.seats.take(peer).ok_or(AdminProblem::TooManyWatchers)?;
    let watcher = open.parts().events.watch(last_seen(&headers)?);
    // Keep only the token from the request head.
    let brought = headers.get(AUTHORIZATION).cloned().map(|token| (AUTHORIZATION, token));
    let headers = brought.into_iter().collect();
    let visit = Visit { open, headers, watcher, begun: Begun::No };
    let feed = Feed { next: Box::pin(visit.next()), _seat: seat };
    let head = [(CONTENT_TYPE, "text/event-stream"), (CACHE_CONTROL, "no-store")];
    Ok((head, Body::from_stream(feed)).into_response())
}

/// Returns the event that a reconnecting watcher has seen last.
fn last_seen(headers: &HeaderMap) -> Result<Option<Id>, AdminProblem> {
    let Some(field) = headers.get(LAST_EVENT_ID) else { return Ok(None) };
    let id = field.to_str().ok().and_then(Id::parse);
    let rule = "must be the id of an event received before";
    id.map(Some).ok_or_else(|| AdminProblem::field("last-event-id", rule))
}

/// One watcher.
struct Visit {
    open: Arc<Open>,
    /// The token, which may be revoked while the stream is open.
    headers: HeaderMap,
    watcher: Watcher,
    begun: Begun,
}

/// Progress of a stream.
#[derive(PartialEq, Eq)]
enum Begun {
    No,
    /// The first message was sent.
    Just,
    /// An event or heartbeat was sent.
    Yes,
}

impl Visit {
    /// Returns the next message and the state to continue with; `None` at the end of the stream.
    async fn next(mut self) -> Option<(Bytes, Self)> {
        if self.begun == Begun::No {
            self.begun = Begun::Just;
            return Some((Bytes::from_static(GREETING.as_bytes()), self));
        }
        let said = tokio::select! {
            biased;
            () = self.open.stop.clone().told() => return None,
            seen = self.watcher.next() => match seen {
                Seen::Told(told) => written(&told).into(),
                Seen::Missed if self.begun == Begun::Just => missed(),
                // The watcher fell behind.
                Seen::Missed => return None,
            },
            () = tokio::time::sleep(HEARTBEAT) => Bytes::from_static(b":\n\n"),
        };
        self.open.parts().tokens.check(&self.headers, Role::Read).ok()?;
        self.begun = Begun::Yes;
        Some((said, self))
    }
}

fn written(told: &Told) -> String {
    let Told { id, name, data } = told;
    format!("id: {id}\nevent: {name}\ndata: {data}\n\n")
}

/// Tells a reconnecting watcher that events before the following ones are missing.
fn missed() -> Bytes {
    Bytes::from_static(b"event: missed\ndata: {}\n\n")
}

type Next = Pin<Box<dyn Future<Output = Option<(Bytes, Visit)>> + Send>>;

/// The response body of a watcher.
struct Feed {
    next: Next,
    /// Freed with the stream.
    _seat: Seat,
}

impl Stream for Feed {
    type Item = Result<Bytes, std::convert::Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Poll::Ready(next) = self.next.as_mut().poll(cx) else { return Poll::Pending };
        let Some((said, visit)) = next else {
            // Polling again returns `None` again.
            self.next = Box::pin(std::future::ready(None));
            return Poll::Ready(None);
        };
        self.next = Box::pin(visit.next());
        Poll::Ready(Some(Ok(said)))
    }
}
