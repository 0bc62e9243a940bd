//! The gRPC API: reads and changes the configuration of a running server.
//!
//! The authorization rules are those of the admin API. The size of messages is bounded.

/// Generated from `proto/` by `cargo run -p tidegate-server --example proto`; a test compares.
#[allow(
    dead_code,
    missing_docs,
    unreachable_pub,
    unused_qualifications,
    clippy::all,
    clippy::pedantic,
    clippy::restriction,
    reason = "generated code"
)]
mod generated {
    include!("grpc/generated/tidegate.admin.v1.rs");
}

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tidegate_config::{Changed, Patch, Source};
use tidegate_http::problem::FieldError;
use tokio::net::TcpListener;
use tokio::time::timeout;
use tonic::body::Body;
use tonic::service::Routes;
use tonic::{Code, Request, Response, Status};
use tonic_types::{ErrorDetails, StatusExt as _};
use tower::Service as _;

use super::change_error::{detail, field_errors};
use crate::configuration::{ActiveConfig, ChangeError};
use crate::database::{DatabaseError, Note};
use crate::listener::accept_loop::{self, AcceptSettings};
use crate::listener::calls::{Call, Calls};
use crate::listener::connection::Peer;
use crate::listener::connections::Capacity;
use crate::listener::drain::Stop;
use crate::listener::eviction::Evict;
use crate::listener::files::OpenFiles;
use crate::listener::workers::{Moved, Workers};
use crate::tokens::{Refused, Role};
use generated::admin_server::{Admin, AdminServer};
use generated::{
    GetConfigRequest, GetConfigResponse, Setting, UpdateConfigRequest, UpdateConfigResponse,
};

/// Maximum size of a request message, in bytes.
const MAX_MESSAGE: usize = 64 * 1024;
/// Timeout of a call. A database write in progress continues after it.
const CALL: Duration = Duration::from_secs(30);
/// Maximum number of open connections; further ones wait to be accepted.
const CONNECTIONS: usize = 1_000;
/// Maximum number of open connections from one network; further ones are refused.
const PER_NETWORK: usize = 250;
/// Maximum number of concurrent calls per connection.
const CALLS: u32 = 64;
/// How long a connection may stay open without making a call.
const FIRST: Duration = Duration::from_secs(10);
/// HTTP/2 keep-alive: idle time before a ping, and how long to wait for its acknowledgement.
const SILENCE: Duration = Duration::from_secs(60);
const ECHO: Duration = Duration::from_secs(10);
/// How long an evicted connection may take to close gracefully.
const GOODBYE: Duration = Duration::from_secs(1);

/// Serves until the server stops, then finishes the calls in flight.
pub(crate) async fn serve(
    config: Arc<ActiveConfig>,
    listener: TcpListener,
    files: OpenFiles,
    stop: Stop,
) {
    let settings = AcceptSettings {
        capacity: Capacity {
            total: CONNECTIONS,
            per_network: PER_NETWORK,
            trusted: config.current().plan.listen.trusted_proxies.value.clone(),
        },
        files,
        metrics: config.parts().metrics.connections("rpc"),
        // HTTP/2 offers no way to send an error before the client's preface.
        refusal: b"",
    };
    let service = AdminServer::new(Door { config }).max_decoding_message_size(MAX_MESSAGE);
    let routes = Routes::new(service).prepare();
    let connection = {
        let stop = stop.clone();
        move |stream, peer| {
            let calls = Arc::new(Calls::new());
            let handle: Arc<dyn Evict> = calls.clone();
            (handle, connection(stream, Peer(peer), calls, routes.clone(), stop.clone()))
        }
    };
    // It has little load and needs no threads of its own.
    let workers = Workers::here();
    accept_loop::serve(listener, settings, &workers, stop, connection).await;
}

/// Serves a connection until it ends. Closes one that makes no call.
async fn connection(stream: Moved, peer: Peer, calls: Arc<Calls>, routes: Routes, stop: Stop) {
    let Some(stream) = stream.arrive() else { return };
    let service = {
        let calls = calls.clone();
        service_fn(move |mut request: http::Request<Incoming>| {
            request.extensions_mut().insert(peer);
            answer(request, routes.clone(), calls.begin())
        })
    };
    let mut http = http2::Builder::new(TokioExecutor::new());
    http.timer(TokioTimer::new())
        .max_concurrent_streams(CALLS)
        .keep_alive_interval(SILENCE)
        .keep_alive_timeout(ECHO);
    let mut served = pin!(http.serve_connection(TokioIo::new(stream), service));
    let (mut stop, mut first) = (pin!(stop.told()), pin!(tokio::time::sleep(FIRST)));
    let (mut is_new, mut stopping) = (true, false);
    let mut evicted = pin!(poll_fn(|cx| calls.poll_evicted(cx)));
    let ended = loop {
        tokio::select! {
            ended = &mut served => break ended,
            () = &mut first, if is_new => is_new = false,
            () = &mut stop, if !stopping => {
                stopping = true;
                served.as_mut().graceful_shutdown();
            }
            () = &mut evicted => {
                tracing::debug!("idle connection evicted");
                served.as_mut().graceful_shutdown();
                // The last response may still have to be sent. Do not wait longer for anything
                // else.
                let _ = timeout(GOODBYE, served).await;
                return;
            }
        }
        // A connection without any call is closed after the first seconds, and at shutdown.
        if !calls.has_asked() {
            tracing::debug!("connection closed without a call");
            return;
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "connection failed");
    }
}

async fn answer(
    request: http::Request<Incoming>,
    mut routes: Routes,
    call: Call,
) -> Result<http::Response<Body>, Infallible> {
    let answer = match tidegate_http::host::check_page(request.headers()) {
        Err(error) => return Ok(Status::permission_denied(error.to_string()).into_http()),
        Ok(()) => timeout(CALL, routes.call(request.map(Body::new))).await,
    };
    drop(call);
    match answer {
        Ok(answer) => answer,
        Err(_) => Ok(Status::deadline_exceeded("the call timed out").into_http()),
    }
}

struct Door {
    config: Arc<ActiveConfig>,
}

impl Door {
    /// Authenticates a request and returns its author.
    fn admit<T>(&self, request: &Request<T>, role: Role) -> Result<Note, Status> {
        match self.config.parts().tokens.check(request.metadata().as_ref(), role) {
            Ok(caller) => Ok(caller.note("rpc", request.extensions().get().copied())),
            Err(Refused::NoToken | Refused::UnknownToken) => {
                Err(Status::unauthenticated("a valid token is required: authorization: Bearer ..."))
            }
            Err(Refused::ReadOnly) => Err(Status::permission_denied("this token is read-only")),
        }
    }
}

#[tonic::async_trait]
impl Admin for Door {
    async fn update_config(
        &self,
        request: Request<UpdateConfigRequest>,
    ) -> Result<Response<UpdateConfigResponse>, Status> {
        let note = self.admit(&request, Role::Write)?;
        let UpdateConfigRequest { set, unset, expected_revision } = request.into_inner();
        let patch = set.iter().fold(Patch::default(), |patch, (key, text)| patch.set(key, text));
        let patch = unset.iter().fold(patch, |patch, key| patch.unset(key));
        let applied = self.config.update(patch, expected_revision, note).await;
        let applied = applied.map_err(|error| refused(&error))?;
        let revision = self.config.current().revision;
        let changed = |Changed { key, old, new, asked, source, .. }| generated::Changed {
            key,
            before: old,
            after: new,
            asked,
            source: source.map(|source: Source| source.to_string()),
        };
        let changed = applied.changes.into_iter().map(changed).collect();
        let warnings = applied.warnings.iter().map(ToString::to_string).collect();
        Ok(Response::new(UpdateConfigResponse { revision, changed, warnings }))
    }

    async fn get_config(
        &self,
        request: Request<GetConfigRequest>,
    ) -> Result<Response<GetConfigResponse>, Status> {
        self.admit(&request, Role::Read)?;
        let prefix = request.into_inner().prefix;
        let current = self.config.current();
        let settings = current.effective.iter().filter(|one| one.is_in(&prefix));
        let settings = settings.map(|one| Setting {
            key: one.key.clone(),
            value: one.value.clone(),
            source: one.source.to_string(),
        });
        let (revision, settings) = (current.revision, settings.collect());
        Ok(Response::new(GetConfigResponse { revision, settings }))
    }
}

/// Converts an error to a status that lists every field error.
fn refused(error: &ChangeError) -> Status {
    let errors = field_errors(error);
    if errors.is_empty() {
        let code = match error {
            ChangeError::Database(DatabaseError::Conflict { .. }) => Code::Aborted,
            ChangeError::Database(DatabaseError::ReadOnly) => Code::FailedPrecondition,
            ChangeError::Interrupted => Code::Internal,
            _ => Code::Unavailable,
        };
        return Status::new(code, detail(error));
    }
    let mut details = ErrorDetails::new();
    let mut told = String::from("invalid configuration");
    for FieldError { field, rule } in errors {
        told.extend(["; ", &field, " ", &rule]);
        details.add_bad_request_violation(field, rule);
    }
    Status::with_error_details(Code::InvalidArgument, told, details)
}
