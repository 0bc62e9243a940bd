//! `tidegate check`: validates a configuration file without starting a server.

mod report;

use std::path::PathBuf;

use tidegate_config::{Config, Loader, process_environment};
use tidegate_server::{ProbeResult, check_config, configured_providers, probe_providers};

use crate::args::output::Output;
use crate::failure::Failure;
use crate::terminal::{eprint_line, print, print_json};

use report::CheckReport;

/// Validates the file together with the environment, which contains API keys and proxies, but
/// without flags and database. With `strict`, also connects to every configured provider.
///
/// As JSON, the report has everything, and standard error has nothing.
pub(crate) fn check(file: PathBuf, strict: bool, output: Output) -> Result<(), Failure> {
    let mut report = CheckReport::default();
    let checked = run(file, strict, output, &mut report);
    if !output.json {
        checked?;
        return print("ok");
    }
    let failure = match checked {
        Ok(()) => None,
        Err(failure @ Failure::Unreachable(..)) => Some(failure),
        Err(failure) => Some(report.reject(failure)?),
    };
    report.valid = report.errors.is_empty();
    print_json(&report)?;
    failure.map_or(Ok(()), |failure| Err(Failure::Reported(failure.into())))
}

fn run(
    file: PathBuf,
    strict: bool,
    output: Output,
    report: &mut CheckReport,
) -> Result<(), Failure> {
    let loader = Loader::default().file(file).environment(process_environment());
    let plan = loader.layers()?.validate_strictly()?;
    report.warnings.extend(plan.warnings.iter().map(ToString::to_string));
    report.warnings.extend(plan.unknown_variables.iter().map(ToString::to_string));
    if !output.json {
        report.warnings.iter().for_each(|warning| eprint_line(warning));
    }
    // Limits are tried on temporary stores, which need a runtime.
    crate::block_on(async { check_config(&plan) })?.map_err(Failure::Unusable)?;
    if strict { reach_all(&plan, output, report) } else { Ok(()) }
}

/// Connects to every configured provider and reports each result.
fn reach_all(plan: &Config, output: Output, report: &mut CheckReport) -> Result<(), Failure> {
    let providers = configured_providers(plan);
    let results = report.providers.insert(Vec::new());
    let tell = |line: &str| {
        if !output.json {
            eprint_line(line);
        }
    };
    if providers.is_empty() {
        tell("no provider is configured; nothing to connect to");
        return Ok(());
    }
    tell(&format!("trying to reach {}", providers.join(", ")));
    let mut failed = 0;
    let on_result = |reached: ProbeResult| {
        failed += usize::from(reached.error.is_some());
        tell(&describe(&reached));
        results.push((&reached).into());
    };
    crate::block_on(probe_providers(plan, on_result))?;
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
