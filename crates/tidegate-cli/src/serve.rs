//! `tidegate serve`: from flags to open doors, and to their orderly end.

use std::io::{self, IsTerminal as _, Write as _};
use std::net::SocketAddr;

use tidegate_config::{Key, Loader, Plan, Source, process_environment};
use tidegate_server::{Drained, Server};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing_subscriber::EnvFilter;

use crate::args::ServeArgs;
use crate::failure::Failure;

/// Serves until the program is told to stop.
pub(crate) fn serve(args: ServeArgs) -> Result<(), Failure> {
    let environment = process_environment();
    log(&environment)?;
    let hints = unused_flags(&args);
    let plan = load(args, environment)?;
    for hint in hints.iter().chain(&closed_doors(&plan)).chain(&strangers(&plan)) {
        tell(hint);
    }
    for variable in &plan.unknown_variables {
        tell(&variable.to_string());
    }
    let server = Server::new(&plan)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(Failure::Runtime)?;
    let done = runtime.block_on(run(server, &plan));
    // Connections that outlived their grace are cut with the runtime.
    runtime.shutdown_background();
    done
}

fn load(args: ServeArgs, environment: Vec<(String, String)>) -> Result<Plan, Failure> {
    let mut loader = Loader::default().environment(environment);
    if let Some(file) = args.config {
        loader = loader.file(file);
    }
    let flags = [
        (Key::ListenHttp, args.http),
        (Key::ListenAdmin, args.admin),
        (Key::ListenGrpc, args.grpc),
        (Key::ListenResp, args.resp),
        (Key::StoreUrl, args.store),
    ];
    for (key, value) in flags {
        if let Some(value) = value {
            loader = loader.flag(key, value);
        }
    }
    Ok(loader.load()?)
}

async fn run(server: Server, plan: &Plan) -> Result<(), Failure> {
    // From here on a signal is a wish to stop, even while the doors are opening.
    let mut terminate = signal(SignalKind::terminate()).map_err(Failure::Runtime)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(Failure::Runtime)?;
    if let Some(keys) = server.max_keys() {
        let memory = plan.store.max_memory.value;
        tell(&format!("the in-process store has room for {keys} keys in {memory}"));
    }
    let running = server.open().await?;
    announce(running.http())?;
    tell(&format!("try: {}", curl(running.http(), plan)));
    told_to_stop(&mut terminate, &mut interrupt).await;
    tell("stopping: requests under way are answered first; a second signal stops at once");
    tokio::select! {
        drained = running.shutdown() => {
            if drained != Drained::Complete {
                tell("some connections were still busy and are cut");
            }
        }
        () = told_to_stop(&mut terminate, &mut interrupt) => {}
    }
    Ok(())
}

async fn told_to_stop(terminate: &mut Signal, interrupt: &mut Signal) {
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}

/// One line for each open door, for the program that started this one.
fn announce(http: SocketAddr) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    writeln!(out, "http://{http}").and_then(|()| out.flush()).map_err(Failure::Output)
}

/// A request that works with this plan.
fn curl(http: SocketAddr, plan: &Plan) -> String {
    let limit = match plan.limits.by_name.keys().next() {
        Some(name) => format!(r#""limit":"{name}""#),
        None => r#""policy":{"capacity":10,"tokens_per_second":1}"#.to_owned(),
    };
    format!(
        "curl -i -H 'content-type: application/json' -d '{{\"key\":\"alice\",{limit}}}' \
         http://{http}/v1/take"
    )
}

/// Flags of parts that this version does not have at all.
fn unused_flags(args: &ServeArgs) -> Vec<String> {
    let mut hints = Vec::new();
    if args.database.as_ref().is_some_and(|database| database != "none") {
        hints.push("--database: this version has no database and keeps nothing on disk".to_owned());
    }
    if args.state_dir.is_some() {
        hints.push("--state-dir: this version keeps nothing on disk".to_owned());
    }
    hints
}

/// Doors that somebody asked for and that this version does not have.
fn closed_doors(plan: &Plan) -> Vec<String> {
    let listen = &plan.listen;
    let doors = [
        ("admin", Key::ListenAdmin, listen.admin.source),
        ("gRPC", Key::ListenGrpc, listen.grpc.source),
        ("RESP", Key::ListenResp, listen.resp.source),
    ];
    let asked = doors.into_iter().filter(|(_, _, source)| *source != Source::Default);
    asked
        .map(|(door, key, source)| {
            let (section, name) = key.in_file();
            let place = match source {
                Source::Flag => key.flag().to_owned(),
                Source::Environment => key.variable().to_owned(),
                _ => format!("{section}.{name}"),
            };
            format!("{place}: this version does not open the {door} door")
        })
        .collect()
}

/// A door beyond loopback that will refuse everybody who calls it by a name.
fn strangers(plan: &Plan) -> Option<String> {
    let (http, hosts) = (plan.listen.http.value, &plan.listen.allowed_hosts.value);
    (!http.ip().is_loopback() && hosts.is_empty()).then(|| {
        format!(
            "the http door serves the hosts localhost and {http} only: add the names and addresses \
             it is called by to `allowed_hosts` under [listen], or to {}",
            Key::ListenAllowedHosts.variable()
        )
    })
}

fn log(environment: &[(String, String)]) -> Result<(), Failure> {
    let wish = environment.iter().find(|(name, _)| name == "TIDEGATE_LOG");
    let wish = wish.map_or("info", |(_, wish)| wish);
    let filter = EnvFilter::builder().parse(wish)?;
    let colours = io::stderr().is_terminal();
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(colours)
        .with_writer(io::stderr)
        .init();
    Ok(())
}

/// Tells a person something. Nobody may be there to read it.
fn tell(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}
