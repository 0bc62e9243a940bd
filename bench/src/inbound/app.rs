//! The app under test: one axum route that returns two letters, alone or behind a limiter.

use anyhow::{Context as _, Result};
use axum::Router;
use axum::routing::get;
use tidegate::{Engine, Policy};
use tidegate_http::field::Styles;
use tidegate_http::key;
use tidegate_http::layer::LimitLayer;
use tidegate_http::route::PerRoute;
use tower_governor::GovernorLayer;
use tower_governor::governor::GovernorConfigBuilder;

/// Large enough that no request is rejected.
const BURST: u32 = 1_000_000_000;

/// The limiter in front of the handler. All use the address of the peer as the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum App {
    Bare,
    Ours,
    OursSilent,
    Governor,
    GovernorFields,
}

impl App {
    pub(crate) const ALL: [Self; 5] =
        [Self::Bare, Self::Ours, Self::OursSilent, Self::Governor, Self::GovernorFields];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Bare => "bare",
            Self::Ours => "tidegate-http as it comes (draft-11 fields)",
            Self::OursSilent => "tidegate-http without fields",
            Self::Governor => "tower-governor as it comes (no fields)",
            Self::GovernorFields => "tower-governor with its fields",
        }
    }

    /// Its name on the command line.
    pub(crate) fn argument(self) -> String {
        let value = clap::ValueEnum::to_possible_value(&self);
        value.map_or_else(String::new, |value| value.get_name().to_owned())
    }

    pub(crate) fn router(self) -> Result<Router> {
        let router = Router::new().route("/", get(async || "ok"));
        Ok(match self {
            Self::Bare => router,
            Self::Ours => router.layer(PerRoute::new().fallback(ours()?)),
            Self::OursSilent => {
                router.layer(PerRoute::new().fallback(ours()?.headers(Styles::NONE)))
            }
            Self::Governor => {
                let config =
                    GovernorConfigBuilder::default().per_second(1).burst_size(BURST).finish();
                router.layer(GovernorLayer::new(config.context(REFUSED)?))
            }
            Self::GovernorFields => {
                let mut config = GovernorConfigBuilder::default();
                let config = config.per_second(1).burst_size(BURST).use_headers().finish();
                router.layer(GovernorLayer::new(config.context(REFUSED)?))
            }
        })
    }
}

const REFUSED: &str = "the peer refuses its configuration";

fn ours() -> Result<LimitLayer> {
    let policy = Policy::per_second(1).capacity(BURST.into()).build()?;
    let limiter = Engine::new().limiter("requests", policy)?;
    Ok(LimitLayer::new().limit(limiter, key::client_ip()))
}
