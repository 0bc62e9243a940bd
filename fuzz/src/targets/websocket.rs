//! WebSocket frames, for which the gate decides before parsing.

use std::borrow::Cow;
use std::sync::LazyLock;

use serde_json::Value;
use tidegate::{Limiter, Policy, now_or_never};
use tidegate_ws::{Gate, MessageDecision, MessageRule, Peer, UNKNOWN_TYPE, json_type};

static GATE: LazyLock<Gate<()>> = LazyLock::new(|| {
    let limiter = Limiter::new(Policy::per_second(1_000_000).build().unwrap());
    Gate::for_types(["PING", "SendMessage"]).limit(MessageRule::new(limiter)).build().unwrap()
});

/// One frame per line. The type must be the one that a full JSON parser finds.
pub(super) fn frames(bytes: &[u8]) {
    let mut connection = GATE.connect(Peer::new(()));
    for frame in bytes.split(|byte| *byte == b'\n') {
        let found = json_type(frame);
        if let (Some(found), Ok(Value::Object(message))) = (&found, serde_json::from_slice(frame)) {
            let expected = message.get("type").and_then(Value::as_str);
            assert_eq!(
                expected.map(Cow::Borrowed).as_ref(),
                Some(found),
                "the message type differs"
            );
        }
        match now_or_never(connection.ingress(frame)).unwrap().unwrap() {
            MessageDecision::Accepted(accepted) => {
                assert!(["PING", "SendMessage", UNKNOWN_TYPE].contains(&accepted.message_type()));
            }
            MessageDecision::Refused(refusal) => drop(refusal.into_reply()),
        }
    }
}
