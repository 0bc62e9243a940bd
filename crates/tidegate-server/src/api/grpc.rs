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
use tidegate_config::{Patch, SettingChange, Source};
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
use crate::database::{ChangeOrigin, DatabaseError};
use crate::listener::accept_loop::{self, AcceptSettings};
use crate::listener::calls::{ActiveCalls, CallGuard};
use crate::listener::connection::Peer;
use crate::listener::connections::Capacity;
use crate::listener::drain::StopSignal;
use crate::listener::eviction::Evict;
use crate::listener::files::OpenFiles;
use crate::listener::workers::{DetachedStream, Workers};
use crate::tokens::{AuthError, Role};
use generated::admin_server::{Admin, AdminServer};
use generated::{
    GetConfigRequest, GetConfigResponse, Setting, UpdateConfigRequest, UpdateConfigResponse,
};

/// Maximum size of a request message, in bytes.
const MAX_MESSAGE: usize = 64 * 1024;
/// Timeout of a call. A database write in progress continues after it.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum number of open connections; further ones wait to be accepted.
const MAX_CONNECTIONS: usize = 1_000;
/// Maximum number of open connections from one network; further ones are refused.
const MAX_PER_NETWORK: usize = 250;
/// Maximum number of concurrent calls per connection.
const MAX_CONCURRENT_CALLS: u32 = 64;
/// How long a connection may stay open without making a call.
const FIRST_CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// HTTP/2 keep-alive: idle time before a ping, and how long to wait for its acknowledgement.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(60);
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long an evicted connection may take to close gracefully.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Serves until the server stops, then finishes the calls in flight.
pub(crate) async fn serve(
    config: Arc<ActiveConfig>,
    listener: TcpListener,
    files: OpenFiles,
    stop: StopSignal,
) {
    let settings = AcceptSettings {
        capacity: Capacity {
            total: MAX_CONNECTIONS,
            per_network: MAX_PER_NETWORK,
            trusted: config.current().plan.listen.trusted_proxies.value.clone(),
        },
        files,
        metrics: config.parts().metrics.connections("rpc"),
        // HTTP/2 offers no way to send an error before the client's preface.
        refusal: b"",
    };
    let service = AdminServer::new(AdminService { config }).max_decoding_message_size(MAX_MESSAGE);
    let routes = Routes::new(service).prepare();
    let connection = {
        let stop = stop.clone();
        move |stream, peer| {
            let calls = Arc::new(ActiveCalls::new());
            let handle: Arc<dyn Evict> = calls.clone();
            (handle, connection(stream, Peer(peer), calls, routes.clone(), stop.clone()))
        }
    };
    // It has little load and needs no threads of its own.
    let workers = Workers::current_runtime();
    accept_loop::serve(listener, settings, &workers, stop, connection).await;
}

/// Serves a connection until it ends. Closes one that makes no call.
async fn connection(
    stream: DetachedStream,
    peer: Peer,
    calls: Arc<ActiveCalls>,
    routes: Routes,
    stop: StopSignal,
) {
    let Some(stream) = stream.attach() else { return };
    let service = {
        let calls = calls.clone();
        service_fn(move |mut request: http::Request<Incoming>| {
            request.extensions_mut().insert(peer);
            handle(request, routes.clone(), calls.begin())
        })
    };
    let mut http = http2::Builder::new(TokioExecutor::new());
    http.timer(TokioTimer::new())
        .max_concurrent_streams(MAX_CONCURRENT_CALLS)
        .keep_alive_interval(KEEP_ALIVE_INTERVAL)
        .keep_alive_timeout(KEEP_ALIVE_TIMEOUT);
    let mut connection = pin!(http.serve_connection(TokioIo::new(stream), service));
    let (mut stop, mut first) = (pin!(stop.wait()), pin!(tokio::time::sleep(FIRST_CALL_TIMEOUT)));
    let (mut awaits_first_call, mut stopping) = (true, false);
    let mut evicted = pin!(poll_fn(|cx| calls.poll_evicted(cx)));
    let ended = loop {
        tokio::select! {
            ended = &mut connection => break ended,
            () = &mut first, if awaits_first_call => awaits_first_call = false,
            () = &mut stop, if !stopping => {
                stopping = true;
                connection.as_mut().graceful_shutdown();
            }
            () = &mut evicted => {
                tracing::debug!("idle connection evicted");
                connection.as_mut().graceful_shutdown();
                // The last response may still have to be sent. Do not wait longer for anything
                // else.
                let _ = timeout(CLOSE_TIMEOUT, connection).await;
                return;
            }
        }
        // A connection without any call is closed after the first seconds, and at shutdown.
        if !calls.has_received_call() {
            tracing::debug!("connection closed without a call");
            return;
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "connection failed");
    }
}

async fn handle(
    request: http::Request<Incoming>,
    mut routes: Routes,
    call: CallGuard,
) -> Result<http::Response<Body>, Infallible> {
    let response = match tidegate_http::host::reject_browser_requests(request.headers()) {
        Err(error) => return Ok(Status::permission_denied(error.to_string()).into_http()),
        Ok(()) => timeout(CALL_TIMEOUT, routes.call(request.map(Body::new))).await,
    };
    drop(call);
    match response {
        Ok(response) => response,
        Err(_) => Ok(Status::deadline_exceeded("the call timed out").into_http()),
    }
}

struct AdminService {
    config: Arc<ActiveConfig>,
}

impl AdminService {
    /// Authenticates a request and returns its author.
    fn authorize<T>(&self, request: &Request<T>, role: Role) -> Result<ChangeOrigin, Status> {
        match self.config.parts().tokens.authenticate(request.metadata().as_ref(), role) {
            Ok(caller) => Ok(caller.note("rpc", request.extensions().get().copied())),
            Err(AuthError::NoToken | AuthError::UnknownToken) => Err(Status::unauthenticated(
                "a valid token is required; send `authorization: Bearer TOKEN`",
            )),
            Err(AuthError::ReadOnly) => Err(Status::permission_denied("this token is read-only")),
        }
    }
}

#[tonic::async_trait]
impl Admin for AdminService {
    async fn update_config(
        &self,
        request: Request<UpdateConfigRequest>,
    ) -> Result<Response<UpdateConfigResponse>, Status> {
        let note = self.authorize(&request, Role::Write)?;
        let UpdateConfigRequest { set, unset, expected_revision } = request.into_inner();
        let patch = set.iter().fold(Patch::default(), |patch, (key, text)| patch.set(key, text));
        let patch = unset.iter().fold(patch, |patch, key| patch.unset(key));
        let applied = self.config.update(patch, expected_revision, note).await;
        let applied = applied.map_err(|error| to_status(&error))?;
        let revision = self.config.current().revision;
        let changed =
            |SettingChange { key, old, new, configured, source, .. }| generated::Changed {
                key,
                before: old,
                after: new,
                asked: configured,
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
        self.authorize(&request, Role::Read)?;
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
fn to_status(error: &ChangeError) -> Status {
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
    let mut message = String::from("invalid configuration");
    for FieldError { field, rule } in errors {
        message.extend(["; ", &field, " ", &rule]);
        details.add_bad_request_violation(field, rule);
    }
    Status::with_error_details(Code::InvalidArgument, message, details)
}
