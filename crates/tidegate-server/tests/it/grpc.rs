//! The gRPC API, through a client generated from the same definition.

/// The generated code of the server, with the client.
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
    include!("../../src/api/grpc/generated/tidegate.admin.v1.rs");
}

#[path = "../../examples/proto/generate.rs"]
mod generate;

use std::fs;

use generated::admin_client::AdminClient;
use generated::{GetConfigRequest, UpdateConfigRequest, UpdateConfigResponse};
use serde_json::json;
use tidegate_server::create_token;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};
use tonic_types::StatusExt as _;

use crate::TestServer;

const LIMITS: &str = "[limits.api]\ncapacity = 10\nrate = \"1/s\"\n";
const PEEK: &str = r#"{"key":"alice","limit":"api","cost":0}"#;

/// A client of the gRPC API.
struct Client<'g> {
    server: &'g TestServer,
    rpc: AdminClient<Channel>,
    token: Option<String>,
}

impl<'g> Client<'g> {
    fn at(server: &'g TestServer) -> Self {
        let address = format!("http://{}", server.running.as_ref().unwrap().grpc());
        let rpc = server.runtime.block_on(AdminClient::connect(address)).unwrap();
        Self { server, rpc, token: None }
    }

    fn with<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        if let Some(token) = &self.token {
            let field = format!("Bearer {token}").parse().unwrap();
            request.metadata_mut().insert("authorization", field);
        }
        request
    }

    fn update(
        &mut self,
        set: &[(&str, &str)],
        expected_revision: Option<u64>,
    ) -> Result<UpdateConfigResponse, Status> {
        let set = set.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        self.send(UpdateConfigRequest { set, unset: Vec::new(), expected_revision })
    }

    fn send(&mut self, message: UpdateConfigRequest) -> Result<UpdateConfigResponse, Status> {
        let request = self.with(message);
        let response = self.server.runtime.block_on(self.rpc.update_config(request));
        response.map(tonic::Response::into_inner)
    }

    /// Returns the value of a key and its source.
    fn get(&mut self, key: &str) -> Result<(String, String), Status> {
        let request = self.with(GetConfigRequest { prefix: key.to_owned() });
        let response = self.server.runtime.block_on(self.rpc.get_config(request))?.into_inner();
        let one = response.settings.into_iter().find(|one| one.key == key).unwrap();
        Ok((one.value, one.source))
    }
}

/// R428: limits change by a call, from the next request on.
#[test]
fn a_call_changes_limits() {
    let server = TestServer::configured(LIMITS);
    let mut client = Client::at(&server);
    assert_eq!(client.get("limits.api.capacity").unwrap(), ("10".into(), "file".into()));
    let set = [("limits.api.capacity", "4"), ("limits.api.rate", "2/s")];
    let response = client.update(&set, Some(0)).unwrap();
    let values = response.changed.iter().map(|one| {
        (one.key.as_str(), one.before.as_deref().unwrap(), one.after.as_deref().unwrap())
    });
    let values: Vec<_> = values.collect();
    let expected = [("limits.api.capacity", "10", "4"), ("limits.api.rate", "\"1/s\"", "\"2/s\"")];
    assert_eq!((response.revision, values.as_slice()), (1, &expected[..]));
    assert_eq!(server.post("/v1/peek", PEEK).member("remaining"), 4);
    assert_eq!(client.get("limits.api.rate").unwrap(), ("\"2/s\"".into(), "runtime".into()));
    let unset = vec!["limits.api".to_owned()];
    client.send(UpdateConfigRequest { unset, ..UpdateConfigRequest::default() }).unwrap();
    assert_eq!(client.get("limits.api.rate").unwrap(), ("\"1/s\"".into(), "file".into()));
}

/// Requests from web pages are refused, whatever protocol the browser uses.
#[test]
fn calls_from_web_pages_are_refused() {
    let server = TestServer::configured(LIMITS);
    let mut client = Client::at(&server);
    for (name, value, allowed) in [
        ("sec-fetch-site", "cross-site", false),
        ("sec-fetch-site", "same-site", false),
        ("origin", "https://evil.example", false),
        ("origin", "null", false),
        ("sec-fetch-site", "none", true),
    ] {
        let mut request = client.with(GetConfigRequest { prefix: "limits".to_owned() });
        request.metadata_mut().insert(name, value.parse().unwrap());
        let response = server.runtime.block_on(client.rpc.get_config(request));
        let code = response.err().map(|status| status.code());
        assert_eq!(code, (!allowed).then_some(Code::PermissionDenied), "{name}: {value}");
    }
}

/// R360 and G13: values adjusted to the allowed range are reported.
#[test]
fn a_response_reports_adjusted_values_and_warnings() {
    let server = TestServer::configured(LIMITS);
    let mut client = Client::at(&server);
    for (asked, before) in [("64", "8"), ("77", "32")] {
        let set = [("providers.openai.max_concurrent_requests", asked)];
        let response = client.update(&set, None).unwrap();
        let [one] = &response.changed[..] else { panic!("{response:?}") };
        let values = (one.before.as_deref(), one.after.as_deref(), one.asked.as_deref());
        assert_eq!(values, (Some(before), Some("32"), Some(asked)));
        assert_eq!(one.source.as_deref(), Some("runtime"), "there is no database");
        let cap = format!("concurrency limit ({asked}) exceeds maximum (32). Capping at 32.");
        assert!(response.warnings.iter().any(|it| it.contains(&cap)), "{response:?}");
    }
}

/// R428: an invalid change is rejected completely, with every error by its key.
#[test]
fn an_invalid_call_changes_nothing() {
    let server = TestServer::configured(LIMITS);
    let mut client = Client::at(&server);
    let set = [
        ("limits.api.capacity", "0"),
        ("limits.api.rate", "fast"),
        ("providers.openai.max_retries", "3"),
        ("listen.http", "0.0.0.0:80"),
    ];
    let refused = client.update(&set, None).unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    let violations = refused.get_details_bad_request().unwrap().field_violations;
    let fields: Vec<_> = violations.iter().map(|one| one.field.as_str()).collect();
    assert_eq!(fields, ["limits.api.capacity", "limits.api.rate", "listen.http"]);
    assert_eq!(server.setting("providers.openai.max_retries"), 8);
    assert_eq!(server.post("/v1/peek", PEEK).member("remaining"), 10);
    assert_eq!(server.admin_get("/admin/config").member("revision"), 0);
}

#[test]
fn a_call_for_an_outdated_revision_changes_nothing() {
    let server = TestServer::configured(LIMITS);
    let mut client = Client::at(&server);
    assert_eq!(server.patch(&json!({"limits": {"api": {"capacity": 5}}})).status, 200);
    let late = client.update(&[("limits.api.capacity", "4")], Some(0)).unwrap_err();
    assert_eq!(late.code(), Code::Aborted, "{late:?}");
    assert_eq!(server.setting("limits.api.capacity"), 5);
    assert_eq!(client.update(&[("limits.api.capacity", "4")], Some(1)).unwrap().revision, 2);
}

#[test]
fn tokens_are_those_of_the_admin_api() {
    let (writer, reader) = (create_token().unwrap(), create_token().unwrap());
    let text = format!(
        "[admin]\nwrite_tokens = [\"{}\"]\nread_tokens = [\"{}\"]\n{LIMITS}",
        writer.digest, reader.digest
    );
    let server = TestServer::configured(&text);
    let mut client = Client::at(&server);
    let set = [("limits.api.capacity", "4")];
    for (token, can_read, can_change) in [
        (None, Code::Unauthenticated, Code::Unauthenticated),
        (Some("made-up".to_owned()), Code::Unauthenticated, Code::Unauthenticated),
        (Some(reader.token.to_string()), Code::Ok, Code::PermissionDenied),
        (Some(writer.token.to_string()), Code::Ok, Code::Ok),
    ] {
        client.token = token;
        let code = |status: Option<Status>| status.map_or(Code::Ok, |status| status.code());
        assert_eq!(code(client.get("limits.api.capacity").err()), can_read);
        assert_eq!(code(client.update(&set, None).err()), can_change);
    }
}

/// The generated code must be up to date.
#[test]
fn the_generated_code_is_up_to_date() {
    let generated_directory = tempfile::tempdir().unwrap();
    generate::generate(generated_directory.path()).unwrap();
    let committed = generate::committed();
    let text =
        |folder: &std::path::Path| fs::read_to_string(folder.join("tidegate.admin.v1.rs")).unwrap();
    let same = text(generated_directory.path()) == text(&committed);
    assert!(same, "cargo run -p tidegate-server --example proto writes {committed:?} anew");
}

/// Regression: one silent connection made the shutdown take its full grace period.
#[test]
fn a_silent_connection_does_not_delay_shutdown() {
    let mut server = TestServer::configured(LIMITS);
    let running = server.running.take().unwrap();
    let silent = std::net::TcpStream::connect(running.grpc()).unwrap();
    let drained = server.runtime.block_on(async {
        tokio::time::timeout(std::time::Duration::from_secs(20), running.shutdown()).await
    });
    assert_eq!(drained.unwrap(), tidegate_server::Drained::Complete);
    drop(silent);
}
