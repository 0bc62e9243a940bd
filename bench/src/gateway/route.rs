//! The three routes to the provider, and their processes.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, anyhow};

use super::nginx::Nginx;
use crate::child::Program;
use crate::machine;
use crate::server_process::Tidegate;

/// A route to the provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Route {
    /// Without a proxy.
    Direct,
    /// Through nginx.
    Nginx,
    /// Through the program, with limits that are never reached.
    Ours,
}

impl Route {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Nginx => "nginx proxy_pass",
            Self::Ours => "tidegate, limits on",
        }
    }
}

/// Address and path at which a route starts.
#[derive(Clone, Copy, Debug)]
pub(super) struct RouteStart {
    pub(super) address: SocketAddr,
    pub(super) path: &'static str,
    /// The id of the proxy's process.
    pub(super) process: Option<u32>,
}

/// All routes. Their processes end on drop.
#[derive(Debug)]
pub(super) struct Routes {
    upstream: (Program, SocketAddr),
    ours: Tidegate,
    nginx: Result<Nginx, String>,
}

impl Routes {
    pub(super) fn open(tidegate: &Path, nginx: Result<PathBuf, String>) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        let (program, line) = Program::start(command.arg("gateway-upstream"))?;
        let address = line.parse().context("the provider printed no address")?;
        let ours = start(tidegate, address)?;
        let workers = machine::cores().len().max(1);
        let nginx = nginx.and_then(|program| {
            Nginx::start(program, address, workers).map_err(|error| format!("{error:#}"))
        });
        Ok(Self { upstream: (program, address), ours, nginx })
    }

    /// The available routes.
    pub(super) fn available(&self) -> impl Iterator<Item = Route> {
        let nginx = self.nginx.is_ok().then_some(Route::Nginx);
        [Some(Route::Direct), nginx, Some(Route::Ours)].into_iter().flatten()
    }

    pub(super) fn route_start(&self, route: Route) -> Result<RouteStart> {
        const PATH: &str = "/v1/chat/completions";
        Ok(match route {
            Route::Direct => RouteStart { address: self.upstream.1, path: PATH, process: None },
            Route::Nginx => {
                let nginx = self.nginx.as_ref().map_err(|error| anyhow!(error.clone()))?;
                RouteStart { address: nginx.address(), path: PATH, process: Some(nginx.id()) }
            }
            Route::Ours => RouteStart {
                address: self.ours.http,
                path: "/openai/v1/chat/completions",
                process: Some(self.ours.id()),
            },
        })
    }

    /// Why nginx is missing.
    pub(super) fn missing(&self) -> Option<&str> {
        self.nginx.as_ref().err().map(String::as_str)
    }
}

/// Starts the program with limits that are never reached.
fn start(program: &Path, upstream: SocketAddr) -> Result<Tidegate> {
    let settings = format!(
        "[providers.openai]\nbase_url = \"http://{upstream}\"\n\
         requests_per_minute = 4000000000\ntokens_per_minute = 4000000000\n\
         max_concurrent_requests = 10000\n"
    );
    Tidegate::start(program, &settings)
}
