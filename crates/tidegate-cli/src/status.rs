//! `tidegate status`: what a running server says about itself, on one screen.
//!
//! Everything comes from its admin API; nothing is changed, and the server need not be on this
//! machine.

mod admin_api;
mod overview;
mod samples;
mod screen;

use std::net::{IpAddr, SocketAddr};

use tidegate_config::process_environment;

use crate::args::status::StatusArgs;
use crate::failure::Failure;
use crate::terminal::{print, print_json};

use admin_api::AdminApi;
pub(crate) use admin_api::StatusError;
use overview::Overview;

/// Variable with the token for the admin API.
const TOKEN: &str = "TIDEGATE_ADMIN_TOKEN";

/// Asks the server and prints what it says. Fails if the server is not ready.
pub(crate) fn status(args: StatusArgs) -> Result<(), Failure> {
    let authority = match &args.admin {
        Some(url) => admin_api::authority(url)?,
        None => configured(args.location.layers()?.validate()?.listen.admin.value)?,
    };
    let environment = process_environment();
    let token = environment.get(TOKEN).filter(|token| !token.is_empty());
    let api = AdminApi::new(authority, token.map(ToOwned::to_owned));
    if args.quiet {
        // Readiness needs no token, unlike the rest.
        return match overview::is_ready(&crate::block_on(api.readiness())??) {
            true => Ok(()),
            false => Err(StatusError::NotReady.into()),
        };
    }
    let overview = crate::block_on(Overview::read(&api))??;
    if args.output.json {
        print_json(&overview)?;
    } else {
        print(&screen::text(&overview))?;
    }
    match overview.is_ready() {
        true => Ok(()),
        // What was printed has the reasons.
        false => Err(Failure::Reported(Box::new(StatusError::NotReady.into()))),
    }
}

/// Returns where to reach a listener of this machine. One on all addresses is reached on loopback.
fn configured(mut address: SocketAddr) -> Result<String, StatusError> {
    if address.port() == 0 {
        return Err(StatusError::FreePort);
    }
    if address.ip().is_unspecified() {
        let loopback = match address.ip() {
            IpAddr::V4(_) => IpAddr::from([127, 0, 0, 1]),
            IpAddr::V6(_) => IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1]),
        };
        address.set_ip(loopback);
    }
    Ok(address.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_on_all_addresses_is_reached_on_loopback() {
        let reached = |text: &str| configured(text.parse().unwrap()).unwrap();
        assert_eq!(reached("0.0.0.0:6070"), "127.0.0.1:6070");
        assert_eq!(reached("[::]:6070"), "[::1]:6070");
        assert_eq!(reached("10.0.0.5:1"), "10.0.0.5:1");
        assert!(configured("127.0.0.1:0".parse().unwrap()).is_err());
    }
}
