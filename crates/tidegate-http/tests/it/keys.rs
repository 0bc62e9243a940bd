//! Keys of requests.

use http::{HeaderName, Request};
use proptest::prelude::*;
use tidegate::{KeyBuf, MAX_KEY_BYTES};
use tidegate_http::Head;
use tidegate_http::identity::{ClientAddress, PeerAddr};
use tidegate_http::key::{self, KeySource, KeyText, MissingKey, MissingKeyError, TemplateError};

const USER: &str = "x-user";

fn request(headers: &[(&str, &[u8])]) -> Request<()> {
    let mut request = Request::get("/a/b?c=d");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let mut request = request.body(()).unwrap();
    request.extensions_mut().insert(PeerAddr("10.0.0.1:4711".parse().unwrap()));
    request
}

fn key_in(source: &dyn KeySource, request: &Request<()>) -> Option<String> {
    let clients = ClientAddress::peer();
    KeyText::of(source, &Head::of(request, &clients)).map(|key| key.as_str().to_owned())
}

fn key(source: &dyn KeySource, headers: &[(&str, &[u8])]) -> Option<String> {
    key_in(source, &request(headers))
}

fn some(text: &str) -> Option<String> {
    Some(text.to_owned())
}

#[test]
fn header_must_occur_once_and_not_be_empty() {
    let source = key::header(USER);
    assert_eq!(key(&source, &[("x-user", b"alice")]), some("alice"));
    assert_eq!(key(&source, &[("x-user", b"  alice\t")]), some("alice"));
    assert_eq!(key(&source, &[("x-user", "jürgen".as_bytes())]), some("jürgen"));
    assert_eq!(key(&source, &[]), None);
    assert_eq!(key(&source, &[("x-user", b" ")]), None);
    assert_eq!(key(&source, &[("x-user", b"alice"), ("x-user", b"bob")]), None);
    let latin = key(&source, &[("x-user", b"j\xfcrgen")]).unwrap();
    assert_eq!(latin.len(), "%sha256:".len() + 32, "invalid UTF-8 is hashed");
}

#[test]
fn header_name_is_text_in_any_case_or_parsed() {
    let by_name = key::header(HeaderName::from_static("x-user"));
    assert_eq!(key(&by_name, &[("x-user", b"alice")]), some("alice"));
    let from_text = |name: String| key::header(&name);
    assert_eq!(key(&from_text("X-User".into()), &[("x-user", b"alice")]), some("alice"));
    for bad in ["", "x user", "x-user:", "jürgen"] {
        let panicked = std::panic::catch_unwind(|| drop(key::header(bad))).unwrap_err();
        let text = panicked.downcast_ref::<String>().unwrap();
        assert!(text.starts_with(&format!("header name {bad:?} is not valid; use")), "{text}");
        assert!(std::panic::catch_unwind(|| drop(key::api_key(bad))).is_err(), "{bad}");
    }
}

#[test]
fn closures_need_no_annotations() {
    let by_prefix = key::from_fn(|head| head.uri().path().get(..2).map(str::to_owned));
    assert_eq!(key(&by_prefix, &[]), some("/a"));
    let by_client = key::from_fn(|head| Some(head.client()?.addr().to_string()));
    assert_eq!(key(&by_client, &[]), some("10.0.0.1"));
}

#[test]
fn credentials_are_hashed() {
    let bearer = |value: &str| key(&key::bearer(), &[("authorization", value.as_bytes())]);
    // printf %s secret-1 | sha256sum | cut -c1-32
    let hash = some("f7e7c36e458e80e6b6a2c67d0a9ec09b");
    assert_eq!(bearer("Bearer secret-1").map(|key| key.len()), Some(32));
    assert_eq!(bearer("Bearer secret-1"), hash);
    assert_eq!(bearer("bearer   secret-1"), hash);
    assert_ne!(bearer("Bearer secret-2"), hash);
    for other in ["Basic secret-1", "Bearer", "Bearer ", "Bearersecret-1", "secret-1", ""] {
        assert_eq!(bearer(other), None, "{other}");
    }
    let field = key::api_key("x-api-key");
    assert_eq!(key(&field, &[("x-api-key", b"secret-1")]), hash);
    assert_eq!(key(&field, &[("x-api-key", b"")]), None);
    let shown = format!("{:?} {:?}", KeyText::default(), PeerAddr("10.0.0.1:1".parse().unwrap()));
    assert_eq!(shown, "KeyText(<0 bytes>) PeerAddr(..)");
}

#[test]
fn clients_are_charged_by_address_or_prefix() {
    assert_eq!(key(&key::client_ip(), &[]), some("10.0.0.1"));
    let mut six = request(&[]);
    six.extensions_mut().insert(PeerAddr("[2001:db8::1:2:3:4]:1".parse().unwrap()));
    assert_eq!(key_in(&key::client_ip(), &six), some("2001:db8::/64"));
    six.extensions_mut().remove::<PeerAddr>();
    assert_eq!(key_in(&key::client_ip(), &six), None);
}

#[test]
fn paths_are_charged_by_template() {
    let source =
        key::path(["/users/me", "/users/{id}", "/users/{id}/posts", "/files/{*rest}", "/"])
            .unwrap();
    let at = |path: &str| {
        let request = Request::get(path).body(()).unwrap();
        key_in(&source, &request).unwrap()
    };
    for (path, template) in [
        ("/", "/"),
        ("/users/me", "/users/me"),
        ("/users/42", "/users/{id}"),
        ("/users/42?x=1", "/users/{id}"),
        ("/users/42/posts", "/users/{id}/posts"),
        ("/files/a/b/c", "/files/{*rest}"),
        ("/files/a", "/files/{*rest}"),
        ("/files/", "other"),
        ("/files", "other"),
        ("/users/", "other"),
        ("/users/42/", "other"),
        ("/users/42/posts/1", "other"),
        ("//users/42", "other"),
        ("/a/b", "other"),
    ] {
        assert_eq!(at(path), template, "{path}");
    }
    let error = |template: &str| key::path([template]).unwrap_err();
    assert_eq!(error("users"), TemplateError::NoSlash("users".into()));
    for template in ["/a{id}", "/{}", "/{*rest}/b", "/{id", "/{*}", "/{a{b}}"] {
        assert_eq!(error(template), TemplateError::Parameter(template.into()));
    }
}

#[test]
fn parts_are_encoded_like_key_parts() {
    let source =
        key::all_of().and(key::constant("rl")).and(key::header(USER)).and(key::client_ip());
    let parts = KeyBuf::from_parts(["rl", "a:b%", "10.0.0.1"]);
    assert_eq!(key(&source, &[("x-user", b"a:b%")]), some(parts.as_key().name()));
    assert_eq!(key(&source, &[]), None, "one part is missing");
    assert_eq!(key(&key::all_of(), &[]), None);
}

#[test]
fn first_available_key_is_tagged() {
    let source = key::first_of().or("user", key::header(USER)).or("ip", key::client_ip());
    assert_eq!(key(&source, &[("x-user", b"10.0.0.1")]), some("user:10.0.0.1"));
    assert_eq!(key(&source, &[]), some("ip:10.0.0.1"));
    assert_eq!(key(&source, &[("x-user", b"ip:10.0.0.1")]), some("user:ip%3A10.0.0.1"));
}

#[test]
fn function_gets_the_head() {
    let source = key::from_fn(|head| Some(format!("{} {}", head.method(), head.uri().path())));
    assert_eq!(key(&source, &[]), some("GET /a/b"));
    assert_eq!(key(&key::from_fn(|_| None), &[]), None);
    assert_eq!(key(&key::from_fn(|_| Some(String::new())), &[]), None);
}

#[test]
fn long_and_reserved_keys_are_hashed() {
    let source = key::header(USER);
    let longest = vec![b'x'; MAX_KEY_BYTES];
    assert_eq!(key(&source, &[("x-user", &longest)]).unwrap().len(), MAX_KEY_BYTES);
    let longer = vec![b'x'; MAX_KEY_BYTES + 1];
    let hashed = key(&source, &[("x-user", &longer)]).unwrap();
    assert!(hashed.starts_with("%sha256:") && hashed.len() == 40, "{hashed}");
    for ours in ["%ip:10.0.0.1", "%shared:anonymous", hashed.as_str()] {
        let key = key(&source, &[("x-user", ours.as_bytes())]).unwrap();
        assert!(key.starts_with("%sha256:") && key != ours, "{key}");
    }
    assert_eq!(key(&source, &[("x-user", b"%25")]), some("%25"));
}

#[test]
fn missing_key_is_replaced_as_configured() {
    let request = request(&[]);
    let clients = ClientAddress::peer();
    let head = Head::of(&request, &clients);
    let fallback = |missing: MissingKey| {
        missing.fallback_key(&head).map(|key| key.map(|key| key.as_str().to_owned()))
    };
    assert_eq!(fallback(MissingKey::default()), Ok(some("%ip:10.0.0.1")));
    assert_eq!(fallback(MissingKey::Skip), Ok(None));
    assert_eq!(fallback(MissingKey::BadRequest), Err(MissingKeyError::BadRequest));
    assert_eq!(fallback(MissingKey::Unauthorized), Err(MissingKeyError::Unauthorized));
    assert_eq!(fallback(MissingKey::Shared("anonymous".into())), Ok(some("%shared:anonymous")));
    let no_peer = Request::get("/").body(()).unwrap();
    let head = Head::of(&no_peer, &clients);
    assert_eq!(MissingKey::default().fallback_key(&head), Err(MissingKeyError::NoPeer));
}

#[test]
fn key_of_invalid_utf8_cannot_be_forged() {
    let source = key::header(USER);
    let latin = key(&source, &[("x-user", b"j\xfcrgen")]).unwrap();
    let copied = key(&source, &[("x-user", latin.as_bytes())]).unwrap();
    assert_ne!(copied, latin);
    let hash = latin.strip_prefix("%sha256:").unwrap();
    assert_eq!(key(&source, &[("x-user", hash.as_bytes())]), some(hash));
    // Also as a part of a combined key.
    let joined = key::all_of().and(key::header(USER));
    let part = key(&joined, &[("x-user", b"j\xfcrgen")]).unwrap();
    assert_ne!(key(&joined, &[("x-user", latin.as_bytes())]), Some(part));
}

#[test]
fn empty_parts_count() {
    for parts in [&["", "a"][..], &["", ""], &["a", ""], &["", "", "a:b"], &["a"]] {
        let mut text = KeyText::default();
        for part in parts {
            text.push_part(part);
        }
        assert_eq!(text.as_str(), KeyBuf::from_parts(parts.iter().copied()).as_key().name());
    }
}

proptest! {
    #[test]
    fn different_parts_never_give_the_same_key(
        a in prop::collection::vec("[a:%]{1,4}", 1..4),
        b in prop::collection::vec("[a:%]{1,4}", 1..4),
    ) {
        let of = |parts: &[String]| {
            let join = |all: key::AllOf, part: &String| all.and(key::constant(part.clone()));
            key(&parts.iter().fold(key::all_of(), join), &[])
        };
        prop_assert_eq!(of(&a) == of(&b), a == b);
    }

    #[test]
    fn every_header_value_yields_a_valid_key(
        value in prop::collection::vec(prop_oneof![32..127_u8, 128..=255_u8], 1..2_000),
    ) {
        if let Some(key) = key(&key::header(USER), &[("x-user", &value)]) {
            prop_assert!(tidegate::Key::new(&key).check().is_ok());
        } else {
            prop_assert!(value.trim_ascii().is_empty());
        }
    }
}
