//! The gate in `docs/from-websocket-middleware.md`.

use tidegate::{Engine, Policy};
use tidegate_ws::{Gate, Identity, LimitKind, MessageRule, key_per_user_per_type, per_user_key};

/// What the application knows of a connection: `ctx.ws.data`.
pub struct Session {
    pub tenant: Option<String>,
    pub user: Option<String>,
    pub is_premium: bool,
}

impl Identity for Session {
    fn tenant(&self) -> Option<&str> {
        self.tenant.as_deref()
    }

    fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }
}

/// For several servers, `Engine::shared(RedisStore::builder(url).open()?)?`.
pub fn gate(engine: &Engine) -> anyhow::Result<Gate<Session>> {
    // { capacity: 100, tokensPerSecond: 10 } and { capacity: 1000, tokensPerSecond: 100 }
    let free = engine.limiter("free", Policy::per_second(10).capacity(100).build()?)?;
    let premium = engine.limiter("premium", Policy::per_second(100).capacity(1_000).build()?)?;
    let expensive = engine.limiter("expensive", Policy::per_second(2).capacity(10).build()?)?;

    let by_tier = MessageRule::<Session>::new(premium)
        .key(per_user_key)
        .when(|context| context.data().is_premium)
        .otherwise(MessageRule::new(free).key(per_user_key));
    let by_cost = MessageRule::new(expensive)
        .key(key_per_user_per_type)
        .cost(|context| if context.message_type() == "Compute" { 5 } else { 1 });

    let gate = Gate::for_types(["SendMessage", "Compute"])
        .limit(by_tier)
        .limit(by_cost)
        .on_limit_exceeded(|info| match info.kind {
            LimitKind::Payload => println!("too large: {} of {}", info.observed, info.limit),
            _ => println!("rate limited: retry after {:?} ms", info.retry_after_ms),
        })
        .build()?;
    Ok(gate)
}
