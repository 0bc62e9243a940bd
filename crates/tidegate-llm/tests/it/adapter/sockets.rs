//! The client over real sockets, in real time.

use std::net::SocketAddr;

use tidegate_llm::adapter::Adapter;
use tidegate_llm::client::Client;
use tidegate_llm::{CallError, ConnectionFailure};
use tidegate_providers::Dialect;
use tidegate_sim::{CallEnding, Fault, Simulator};
use tokio::net::TcpListener;
use tower::ServiceExt as _;

use super::{account, call, simulator, target};

async fn serve(simulator: &Simulator) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = simulator.clone();
    tokio::spawn(async move { server.serve(listener).await });
    address
}

fn adapter(address: SocketAddr) -> Adapter<Client> {
    let fields = [("x-sim-output-tokens", "10")];
    let target = target(Dialect::OpenAi, &format!("http://{address}/v1"), &fields);
    Adapter::new(Client::new().unwrap(), "sim", target)
}

#[tokio::test]
async fn client_handles_whole_streamed_and_failed_responses() {
    let simulator = simulator(account(tidegate_sim::Dialect::OpenAi));
    let adapter = adapter(serve(&simulator).await);
    for call in [call(), call().streamed(), call()] {
        let answer = adapter.clone().oneshot(call).await.unwrap();
        assert_eq!(answer.into_reply().await.unwrap().usage.unwrap().output, 10);
    }
    simulator.inject("main", Fault::Cut { after: 3 }, 1).unwrap();
    let answer = adapter.clone().oneshot(call().streamed()).await.unwrap();
    let error = answer.into_reply().await.unwrap_err();
    assert!(
        matches!(error, CallError::Connection { kind: ConnectionFailure::Closed, .. }),
        "{error:?}"
    );
    simulator.inject("main", Fault::Overloaded, 1).unwrap();
    let error = adapter.oneshot(call()).await.unwrap_err();
    assert_eq!(error.failure().unwrap().status.as_u16(), 503);
    assert_eq!(simulator.ledger().count(|entry| entry.ending == CallEnding::Complete), 3);
}
