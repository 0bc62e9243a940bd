//! The two text formats of Prometheus.
//!
//! They differ in the names of counters: OpenMetrics describes `x` and samples `x_total`, the older
//! format uses `x_total` for both. Tools that only know the older one (such as `promtool check
//! metrics`) take OpenMetrics for metrics without a description.

use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

/// A text format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// OpenMetrics 1.0, for clients that accept it.
    OpenMetrics,
    /// The older Prometheus format 0.0.4, for all other clients.
    Classic,
}

impl Format {
    /// Selects the format by the `Accept` header. Prometheus prefers OpenMetrics whenever it lists
    /// it.
    pub(crate) fn accepted(accept: Option<&str>) -> Self {
        match accept {
            Some(accept) if accept.contains("application/openmetrics-text") => Self::OpenMetrics,
            _ => Self::Classic,
        }
    }

    pub(crate) const fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Classic => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

pub(super) fn write(registry: &Registry, format: Format) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = encode(&mut text, registry);
    match format {
        Format::OpenMetrics => text,
        Format::Classic => classic(&text),
    }
}

/// Converts OpenMetrics text to the older format. Each family has a HELP line, then a TYPE line.
fn classic(text: &str) -> String {
    let mut classic = String::with_capacity(text.len() + text.len() / 8);
    let mut help = None;
    for line in text.lines() {
        if let Some(description) = line.strip_prefix("# HELP ") {
            help = description.split_once(' ');
        } else if let Some((name, kind)) =
            line.strip_prefix("# TYPE ").and_then(|typed| typed.split_once(' '))
        {
            let total = if kind == "counter" { "_total" } else { "" };
            if let Some((_, text)) = help.take() {
                classic.extend(["# HELP ", name, total, " ", text, "\n"]);
            }
            classic.extend(["# TYPE ", name, total, " ", kind, "\n"]);
        } else if !line.starts_with('#') {
            classic.extend([line, "\n"]);
        }
    }
    classic
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_described_by_their_sample_name() {
        let text = "# HELP a Some a.\n# TYPE a counter\na_total{x=\"# y\"} 1\n# HELP b Some b.\n\
                    # TYPE b gauge\nb 2\n# EOF\n";
        assert_eq!(
            classic(text),
            "# HELP a_total Some a.\n# TYPE a_total counter\na_total{x=\"# y\"} 1\n\
             # HELP b Some b.\n# TYPE b gauge\nb 2\n"
        );
    }

    #[test]
    fn openmetrics_is_used_if_accepted() {
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.75,text/plain;q=0.5,*/*";
        assert_eq!(Format::accepted(Some(prometheus)), Format::OpenMetrics);
        assert_eq!(Format::accepted(Some("*/*")), Format::Classic);
        assert_eq!(Format::accepted(None), Format::Classic);
    }
}
