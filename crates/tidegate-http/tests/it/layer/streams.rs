//! Streaming bodies and upgraded connections pass through unchanged.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::ws::{Message, WebSocketUpgrade};
use axum::routing::get;
use futures_util::{SinkExt, StreamExt, stream};
use http::header::HeaderMap;
use http::{Method, Request, Response};
use http_body::{Body as _, Frame};
use http_body_util::{BodyExt, Full, StreamBody};
use tidegate_http::layer::LimitLayer;
use tokio::sync::mpsc;
use tower::{Layer, ServiceExt, service_fn};

use super::test_server::TestServer;
use super::{by_user, engine, limiter};

fn layer() -> LimitLayer {
    let (engine, _) = engine();
    // With a settlement, so that the layer observes bodies.
    LimitLayer::new().limit(limiter(&engine, "users", 9), by_user()).settle(|_| 1)
}

#[tokio::test]
async fn chunks_are_not_held_back() {
    let (sender, receiver) = mpsc::unbounded_channel::<&'static str>();
    let receiver = Arc::new(Mutex::new(Some(receiver)));
    let handler = get(move || async move {
        let receiver = receiver.lock().unwrap().take().unwrap();
        let chunks = stream::unfold(receiver, |mut receiver| async move {
            let chunk = receiver.recv().await?;
            Some((Ok::<_, std::io::Error>(chunk), receiver))
        });
        Body::from_stream(chunks)
    });
    let router = Router::new().route("/", handler).layer(layer());
    let server = TestServer::start(router).await;
    let mut body = server.send(Method::GET, "/", &[]).await.into_body();
    for chunk in ["one", "two", "three"] {
        sender.send(chunk).unwrap();
        // If the chunk were held back, this would never return.
        let frame = body.frame().await.unwrap().unwrap();
        assert_eq!(frame.into_data().unwrap(), chunk);
    }
    drop(sender);
    assert!(body.frame().await.is_none());
}

#[tokio::test]
async fn length_end_and_trailers_are_those_of_the_inner_body() {
    let whole = service_fn(|_: Request<()>| async {
        Ok::<_, Infallible>(Response::new(Full::<Bytes>::from("12345")))
    });
    let response = layer().layer(whole).oneshot(as_alice()).await.unwrap();
    let mut body = response.into_body();
    assert_eq!((body.size_hint().exact(), body.is_end_stream()), (Some(5), false));
    assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "12345");
    assert_eq!((body.size_hint().exact(), body.is_end_stream()), (Some(0), true));

    let parts = service_fn(|_: Request<()>| async {
        let mut trailers = HeaderMap::new();
        trailers.insert("x-checksum", "7".parse().unwrap());
        let frames: [Result<_, Infallible>; 2] =
            [Ok(Frame::data(Bytes::from("12345"))), Ok(Frame::trailers(trailers))];
        Ok::<_, Infallible>(Response::new(StreamBody::new(stream::iter(frames))))
    });
    let response = layer().layer(parts).oneshot(as_alice()).await.unwrap();
    let body = response.into_body();
    assert_eq!((body.size_hint().exact(), body.is_end_stream()), (None, false));
    let collected = body.collect().await.unwrap();
    assert_eq!(collected.trailers().unwrap()["x-checksum"], "7");
    assert_eq!(collected.to_bytes(), "12345");
}

fn as_alice() -> Request<()> {
    Request::get("/").header("x-user", "alice").body(()).unwrap()
}

#[tokio::test]
async fn web_socket_works_through_the_layer() {
    let echo = get(|upgrade: WebSocketUpgrade| async {
        upgrade.on_upgrade(|mut socket| async move {
            while let Some(Ok(Message::Text(text))) = socket.recv().await {
                socket.send(Message::Text(text)).await.unwrap();
            }
        })
    });
    let server = TestServer::start(Router::new().route("/", echo).layer(layer())).await;
    let url = format!("ws://{}/", server.address);
    let (mut socket, response) = tokio_tungstenite::connect_async(url).await.unwrap();
    assert_eq!(response.status(), 101);
    assert_eq!(response.headers()["ratelimit"], r#""users";r=8;t=1"#);
    for text in ["ahoy", "again"] {
        socket.send(text.into()).await.unwrap();
        assert_eq!(socket.next().await.unwrap().unwrap().into_text().unwrap().as_str(), text);
    }
}
