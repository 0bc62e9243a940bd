//! The names that may be used as label values: configured names, up to a bound.

use std::collections::BTreeSet;
use std::sync::Arc;

use arc_swap::ArcSwap;

/// Label of all names that are not configured.
pub(super) const OTHER: &str = "other";

/// Maximum number of names of one kind with their own metrics. Without it, frequent configuration
/// changes could add names without end.
pub(super) const MAX_NAMES: usize = 1_000;

/// The names of one kind. A name that was ever configured keeps its metrics, so that its counts do
/// not disappear.
#[derive(Debug, Default)]
pub(super) struct Names(ArcSwap<BTreeSet<Arc<str>>>);

impl Names {
    /// Adds configured names.
    pub(super) fn add<'n>(&self, names: impl IntoIterator<Item = &'n str>) {
        let names: Vec<&str> = names.into_iter().collect();
        self.0.rcu(|known| {
            let mut known = BTreeSet::clone(known);
            for name in &names {
                if known.len() < MAX_NAMES && !known.contains(*name) {
                    known.insert((*name).into());
                }
            }
            known
        });
    }

    /// Returns the label value for a name.
    pub(super) fn label(&self, name: &str) -> Arc<str> {
        self.0.load().get(name).cloned().unwrap_or_else(|| OTHER.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removed_names_keep_their_series_and_excess_names_share_one() {
        let names = Names::default();
        assert_eq!(&*names.label("client"), OTHER);
        names.add(["client"]);
        names.add(["organization"]);
        assert_eq!(&*names.label("client"), "client");
        let many: Vec<String> = (0..MAX_NAMES + 10).map(|n| format!("limit-{n:05}")).collect();
        names.add(many.iter().map(String::as_str));
        let labels: BTreeSet<_> = many.iter().map(|name| names.label(name)).collect();
        assert_eq!(labels.len(), MAX_NAMES - 2 + 1);
    }
}
