//! `tidegate check`: validates a configuration file without starting a server.

use std::path::PathBuf;

use tidegate_config::{Config, Loader, process_environment};
use tidegate_server::{ProbeResult, check_config, configured_providers, probe_providers};

use crate::failure::Failure;
use crate::terminal::{eprint_line, print};

/// Validates the file together with the environment, which contains API keys and proxies, but
/// without flags and database. With `strict`, also connects to every configured provider.
pub(crate) fn check(file: PathBuf, strict: bool) -> Result<(), Failure> {
    let loader = Loader::default().file(file).environment(process_environment());
    let plan = loader.layers()?.validate_strictly()?;
    for warning in &plan.warnings {
        eprint_line(&warning.to_string());
    }
    for variable in &plan.unknown_variables {
        eprint_line(&variable.to_string());
    }
    // Limits are tried on temporary stores, which need a runtime.
    crate::block_on(async { check_config(&plan) })?.map_err(Failure::Unusable)?;
    if strict {
        reach_all(&plan)?;
    }
    print("ok")
}

/// Connects to every configured provider and reports each result.
fn reach_all(plan: &Config) -> Result<(), Failure> {
    let providers = configured_providers(plan);
    if providers.is_empty() {
        eprint_line("no provider is configured; nothing to connect to");
        return Ok(());
    }
    eprint_line(&format!("trying to reach {}", providers.join(", ")));
    let mut failed = 0;
    let report = |reached: ProbeResult| {
        failed += usize::from(reached.error.is_some());
        eprint_line(&describe(&reached));
    };
    crate::block_on(probe_providers(plan, report))?;
    if failed == 0 { Ok(()) } else { Err(Failure::Unreachable(failed, providers.len())) }
}

/// Describes the result for one provider.
fn describe(reached: &ProbeResult) -> String {
    let ProbeResult { provider, base_url, proxy, error, .. } = reached;
    let via = proxy.as_ref().map_or(String::new(), |proxy| format!(" through proxy {proxy}"));
    match error {
        None => format!("{provider}: reached {base_url}{via}"),
        Some(error) => format!("{provider}: cannot reach {base_url}{via}: {error}"),
    }
}
