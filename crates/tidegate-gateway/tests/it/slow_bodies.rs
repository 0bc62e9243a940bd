//! Callers that are too slow with their bodies, in virtual time.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use tidegate_gateway::{Gateway, RequestBody};
use tidegate_providers::Dialect;
use tokio::time::{Instant, sleep};
use tower::BoxError;
use tower::service_fn;

use crate::stage::{FAMILIES, PEER, SECOND, Want, chat, engine, is_idle, read, scripted, upstream};
use crate::wire::{Drip, Script};

fn fine() -> Script {
    Script::new(|_, _| Response::new(Full::new(Bytes::from_static(b"{}"))))
}

/// Nearly all of a body at once, and then a byte a second for an hour.
fn dripping(size: usize) -> Drip {
    let most: &'static str = " ".repeat(size).leak();
    let mut pieces = vec![(Duration::ZERO, most)];
    pieces.extend([(SECOND, " "); 3_600]);
    Drip::new(&pieces)
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_sends_its_last_bytes_one_by_one_is_told_so_by_every_family() {
    let script = fine();
    for (name, dialect, _) in FAMILIES {
        for size in [0, 1 << 10, 4 << 20] {
            let gateway = scripted(&script, [upstream(name, dialect)]);
            let start = Instant::now();
            let request = chat(name, Want::Whole).map(|_| dripping(size));
            let answer = read(gateway.handle(request, PEER).await).await.unwrap();
            assert_eq!((answer.status.as_u16(), answer.field("connection")), (408, "close"));
            assert!(answer.json()["error"].to_string().contains("did not come in time"), "{name}");
            assert!((SECOND * 19..SECOND * 22).contains(&start.elapsed()), "{name} {size}");
            assert!(is_idle(&gateway));
        }
    }
    assert!(script.got().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_steady_caller_has_ten_minutes_for_what_is_buffered() {
    let script = fine();
    let gateway = scripted(&script, [upstream("openai", Dialect::OpenAi)]);
    let piece: &'static str = " ".repeat(16 << 10).leak();
    for (pieces, status) in [(590, 200), (610, 408)] {
        let body = Drip::new(&vec![(SECOND, piece); pieces]);
        let request = chat("openai", Want::Whole).map(|_| body);
        let answer = read(gateway.handle(request, PEER).await).await.unwrap();
        assert_eq!(answer.status, status, "{pieces}");
    }
    assert_eq!(script.got().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_upload_that_drips_is_cut_off_and_gives_its_place_back() {
    for (path, kind) in [
        ("/openai/v1/audio/transcriptions", "multipart/form-data; boundary=x"),
        ("/openai/v1/audio/transcriptions", "audio/wav"),
        ("/openai/v1/files", "multipart/form-data; boundary=x"),
    ] {
        let gateway = scripted(&fine(), [upstream("openai", Dialect::OpenAi)]);
        let request = Request::post(path).header("content-type", kind);
        let start = Instant::now();
        let request = request.body(dripping(128 << 10)).unwrap();
        let answer = read(gateway.handle(request, PEER).await).await.unwrap();
        assert_eq!(answer.status, 408, "{path} {kind}");
        assert!((SECOND * 59..SECOND * 63).contains(&start.elapsed()), "{:?}", start.elapsed());
        assert!(is_idle(&gateway));
    }
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_does_not_read_is_not_the_callers_fault() {
    let http = service_fn(|request: Request<RequestBody>| async move {
        let mut body = request.into_body();
        for _ in 0..10 {
            sleep(SECOND * 100).await;
            body.frame().await.unwrap()?;
        }
        body.collect().await?;
        Ok::<_, BoxError>(Response::new(Full::new(Bytes::from_static(b"{}"))))
    });
    let upstream = upstream("openai", Dialect::OpenAi);
    let gateway = Gateway::builder(&engine()).http(http).upstream(upstream).build().unwrap();
    let body = Drip::new(&[(Duration::ZERO, "piece"); 20]);
    let request = Request::post("/openai/v1/files").body(body).unwrap();
    let answer = read(gateway.handle(request, PEER).await).await.unwrap();
    assert_eq!(answer.status, 200);
}

#[tokio::test(start_paused = true)]
async fn large_bodies_of_one_address_leave_room_for_small_ones_and_for_other_addresses() {
    let gateway = Arc::new(scripted(&fine(), [upstream("openai", Dialect::OpenAi)]));
    let most: &'static str = " ".repeat(24 << 20).leak();
    let large = || {
        let body = Drip::new(&[(Duration::ZERO, most), (SECOND * 10, " ")]);
        chat("openai", Want::Whole).map(|_| body)
    };
    let mut under_way = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let (gateway, request) = (gateway.clone(), large());
        under_way.spawn(async move { read(gateway.handle(request, PEER).await).await.unwrap() });
    }
    let refused = under_way.join_next().await.unwrap().unwrap();
    assert_eq!((refused.status.as_u16(), refused.field("retry-after")), (503, "1"));
    assert_eq!(refused.json()["error"]["code"], "gateway_busy");
    assert!(refused.json()["error"]["message"].as_str().unwrap().contains("of this address"));
    let small = gateway.handle(chat("openai", Want::Whole), PEER).await;
    assert_eq!(small.status(), 200);
    let other = gateway.handle(large(), [127, 0, 0, 2].into()).await;
    assert_eq!(other.status(), 200);
    let rest = under_way.join_all().await;
    assert!(rest.iter().all(|answer| answer.status == 200));
    assert_eq!(gateway.handle(large(), PEER).await.status(), 200, "all was given back");
}
