//! The report of `tidegate simulate` as text for a terminal.

use super::columns::{columns, row};
use super::text::{duration, key, share};
use super::{LogReport, PolicyReport, SearchReport, SimulationReport};

impl SimulationReport {
    /// Formats the report as text.
    #[must_use]
    pub fn to_table(&self) -> String {
        let mut parts = vec![self.log.to_lines()];
        if !self.policies.is_empty() {
            parts.push(self.policy_table());
            parts.push(self.retry_table());
        }
        if self.max_wait_ms > 0 && !self.policies.is_empty() {
            parts.push(self.wait_table());
        }
        parts.push(self.key_table());
        parts.extend(self.policies.iter().filter(|it| it.denied > 0).map(PolicyReport::key_table));
        parts.extend(self.search.as_ref().map(SearchReport::to_table));
        parts.join("\n")
    }

    fn policy_table(&self) -> String {
        let head = row([
            &"policy",
            &"capacity",
            &"rate",
            &"admitted",
            &"denied",
            &"share",
            &"denied cost",
            &"share",
            &"keys denied",
        ]);
        let policies = self.policies.iter().map(|it| {
            row([
                &key(&it.name),
                &it.capacity,
                &it.rate,
                &it.admitted,
                &it.denied,
                &share(it.denied_percent),
                &it.denied_cost,
                &share(it.denied_cost_percent),
                &it.keys_denied,
            ])
        });
        columns(&[head].into_iter().chain(policies).collect::<Vec<_>>())
    }

    fn retry_table(&self) -> String {
        let head = row([&"denied could retry after", &"p50", &"p90", &"p99", &"max", &"never"]);
        let policies = self.policies.iter().map(|it| {
            let [p50, p90, p99, max] =
                [it.retry.p50_ms, it.retry.p90_ms, it.retry.p99_ms, it.retry.max_ms].map(duration);
            row([&key(&it.name), &p50, &p90, &p99, &max, &it.over_capacity])
        });
        columns(&[head].into_iter().chain(policies).collect::<Vec<_>>())
    }

    fn wait_table(&self) -> String {
        let title = format!("waited, at most {}", duration(self.max_wait_ms));
        let head = row([&title, &"requests", &"p50", &"p99", &"max"]);
        let policies = self.policies.iter().map(|it| {
            let [p50, p99, max] = [it.waits.p50_ms, it.waits.p99_ms, it.waits.max_ms].map(duration);
            row([&key(&it.name), &it.waits.count, &p50, &p99, &max])
        });
        columns(&[head].into_iter().chain(policies).collect::<Vec<_>>())
    }

    fn key_table(&self) -> String {
        let head = row([&"keys with most requests", &"requests", &"cost"]);
        let keys = self.top_keys.iter().map(|it| row([&key(&it.key), &it.requests, &it.cost]));
        columns(&[head].into_iter().chain(keys).collect::<Vec<_>>())
    }
}

impl PolicyReport {
    fn key_table(&self) -> String {
        let title = format!("keys most denied by {}", key(&self.name));
        let head = row([&title, &"denied", &"requests"]);
        let keys = self.top_denied.iter().map(|it| row([&key(&it.key), &it.denied, &it.requests]));
        columns(&[head].into_iter().chain(keys).collect::<Vec<_>>())
    }
}

impl LogReport {
    /// Describes the log, in one line or more.
    pub(super) fn to_lines(&self) -> String {
        let Self { requests, keys, cost, .. } = self;
        let mut text = format!("{requests} requests of {keys} keys, cost {cost}");
        if let (Some(first), Some(last)) = (&self.first, &self.last) {
            text += &format!(", {first} to {last} ({})", duration(self.span_ms));
        }
        text.push('\n');
        if self.invalid_lines > 0 {
            text += &format!("{} of {} lines cannot be read\n", self.invalid_lines, self.lines);
        }
        if self.out_of_order_lines > 0 {
            text += &format!(
                "{} lines are earlier than one before them, by {} at most\n",
                self.out_of_order_lines,
                duration(self.largest_step_back_ms)
            );
        }
        text
    }
}

impl SearchReport {
    fn to_table(&self) -> String {
        let below = format!(
            "smallest capacity that denies less than {} of the {}",
            self.deny_below, self.by
        );
        let head = row([
            &"rate",
            &"capacity",
            &"in a minute",
            &"denied",
            &"share",
            &"denied cost",
            &"share",
            &"denies nothing",
            &"",
        ]);
        let points = self.frontier.iter().enumerate().map(|(index, it)| {
            row([
                &it.rate,
                &it.capacity,
                &it.spendable_in_a_minute,
                &it.denied,
                &share(it.denied_percent),
                &it.denied_cost,
                &share(it.denied_cost_percent),
                &it.denies_nothing,
                &if self.best == Some(index) { "<- least in a minute" } else { "" },
            ])
        });
        let table = columns(&[head].into_iter().chain(points).collect::<Vec<_>>());
        let best = self.best.map(|index| &self.frontier[index]);
        let policy = best.map_or_else(String::new, |best| {
            format!("\n--policy 'capacity={},rate={}'\n", best.capacity, best.rate)
        });
        format!("{below}\n{table}{policy}")
    }
}
