//! `tidegate serve`: starts the server, handles signals, and shuts down gracefully.

use std::io::{self, IsTerminal as _};
use std::net::SocketAddr;

use tidegate_config::{Config, Key, Layers, ProviderConfig, process_environment};
use tidegate_server::{Drained, Running, Server, Sockets};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing_subscriber::EnvFilter;

use crate::activation;
use crate::args::{DOCUMENTS, ServeArgs};
use crate::failure::Failure;
use crate::notify::Notifier;
use crate::terminal::{eprint_line, has_color, print};

/// Runs the server until a signal stops it.
pub(crate) fn serve(args: ServeArgs) -> Result<(), Failure> {
    init_logging()?;
    let sockets = activation::take_sockets()?;
    let layers = load(args, &sockets)?;
    let plan = layers.validate()?;
    if let Some(hint) = host_hint(&plan) {
        eprint_line(&hint);
    }
    for variable in &plan.unknown_variables {
        eprint_line(&variable.to_string());
    }
    let server = Server::new(layers)?.with_sockets(sockets);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(Failure::Runtime)?;
    let done = runtime.block_on(run(server, &plan));
    // Closes connections that outlived the grace period.
    runtime.shutdown_background();
    done
}

fn load(args: ServeArgs, sockets: &Sockets) -> Result<Layers, Failure> {
    let mut loader = args.location.loader();
    let flags = [
        (Key::ListenHttp, args.http),
        (Key::ListenAdmin, args.admin),
        (Key::ListenGrpc, args.grpc),
        (Key::ListenResp, args.resp),
        (Key::StoreUrl, args.store),
        (Key::DatabaseAutoMigrate, args.auto_migrate.then(|| "true".to_owned())),
        (Key::AdminAllowUnauthenticated, args.allow_unauthenticated.then(|| "true".to_owned())),
    ];
    for (key, value) in flags {
        if let Some(value) = value {
            loader = loader.flag(key, value);
        }
    }
    Ok(activation::configure(sockets, loader).layers()?)
}

async fn run(server: Server, plan: &Config) -> Result<(), Failure> {
    // Install handlers first, so that a signal during startup stops the server too.
    let mut terminate = signal(SignalKind::terminate()).map_err(Failure::Runtime)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(Failure::Runtime)?;
    let mut hangup = signal(SignalKind::hangup()).map_err(Failure::Runtime)?;
    let notifier = Notifier::from_environment();
    if let Some(keys) = server.max_keys() {
        let memory = plan.store.max_memory.value;
        eprint_line(&format!("the in-process store has room for {keys} keys in {memory}"));
    }
    let running = server.open().await?;
    announce(&running)?;
    eprint_line(&format!("try: {}", curl(running.http(), plan)));
    if let Some(line) = base_urls(running.http(), plan) {
        eprint_line(&line);
    }
    eprint_line(&format!("documents: {DOCUMENTS}"));
    let status = format!("listening on http://{}", running.http());
    notifier.ready(&status);
    tokio::select! {
        () = stop_signal(&mut terminate, &mut interrupt) => {}
        () = reload_on_hangup(&running, &mut hangup, &notifier, &status) => {}
        () = notifier.feed_watchdog() => {}
    }
    notifier.stopping();
    eprint_line("stopping after requests in progress; a second signal stops immediately");
    tokio::select! {
        drained = running.shutdown() => {
            if drained != Drained::Complete {
                eprint_line("closing connections that are still busy");
            }
        }
        () = stop_signal(&mut terminate, &mut interrupt) => {}
        () = notifier.feed_watchdog() => {}
    }
    Ok(())
}

async fn stop_signal(terminate: &mut Signal, interrupt: &mut Signal) {
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}

/// Reloads the file on every SIGHUP. Errors are logged.
async fn reload_on_hangup(
    running: &Running,
    hangup: &mut Signal,
    notifier: &Notifier,
    status: &str,
) {
    while hangup.recv().await.is_some() {
        notifier.reloading();
        running.reload().await;
        notifier.ready(status);
    }
}

/// Prints one line per listener, for the program that started this one.
fn announce(running: &Running) -> Result<(), Failure> {
    let (http, admin, grpc) = (running.http(), running.admin(), running.grpc());
    print(&format!("http://{http}\nadmin http://{admin}\ngrpc://{grpc}"))
}

/// Returns an example request that works with this configuration.
fn curl(http: SocketAddr, plan: &Config) -> String {
    let limit = match plan.limits.by_name.keys().next() {
        Some(name) => format!(r#""limit":"{name}""#),
        None => r#""policy":{"capacity":10,"tokens_per_second":1}"#.to_owned(),
    };
    format!(
        "curl -i -H 'content-type: application/json' -d '{{\"key\":\"alice\",{limit}}}' \
         http://{http}/v1/take"
    )
}

/// Returns the base URLs to configure in SDKs, in one line.
fn base_urls(http: SocketAddr, plan: &Config) -> Option<String> {
    let providers = plan.providers.values().filter(|it| it.has_gateway_path());
    let paths: Vec<_> = providers.map(ProviderConfig::sdk_path).collect();
    (!paths.is_empty()).then(|| {
        format!("base URL for SDKs of LLM providers: http://{http} and one of {}", paths.join(", "))
    })
}

/// Returns a hint if the HTTP API listens beyond loopback but accepts no other host names.
fn host_hint(plan: &Config) -> Option<String> {
    let (http, hosts) = (plan.listen.http.value, &plan.listen.allowed_hosts.value);
    (!http.ip().is_loopback() && hosts.is_empty()).then(|| {
        format!(
            "the HTTP API accepts only the hosts localhost and {http}; add the names and addresses \
             that clients use to `allowed_hosts` under [listen], or to {}",
            Key::ListenAllowedHosts.variable()
        )
    })
}

fn init_logging() -> Result<(), Failure> {
    let environment = process_environment();
    let filter_text = environment.iter().find(|(name, _)| name == "TIDEGATE_LOG");
    let filter_text = filter_text.map_or("info", |(_, filter_text)| filter_text);
    let filter = EnvFilter::builder().parse(filter_text)?;
    let use_color = has_color(&environment, io::stderr().is_terminal());
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(use_color)
        .with_writer(io::stderr)
        .init();
    Ok(())
}
