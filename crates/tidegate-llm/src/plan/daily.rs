//! Requests of a day: a quota that comes back all at once, at a midnight of the provider's choice.

use std::num::NonZeroU32;

use jiff::tz::TimeZone;
use tidegate::Schedule;

use super::raw::RawConstraint;
use super::violation::{Checks, Rule, rate};

/// Requests of a calendar day, and where that day begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Daily {
    requests: NonZeroU32,
    zone: String,
    schedule: Schedule,
}

impl Daily {
    /// The quota of a day; a zone without one is refused.
    pub(super) fn parse(raw: &RawConstraint, checks: &mut Checks) -> Option<Self> {
        let requests =
            checks.optional("requests_per_day", raw.requests_per_day, |given| rate(*given));
        let given = raw.requests_per_day_zone.as_deref();
        let zone = checks.check("requests_per_day_zone", given.unwrap_or("UTC"), |name| zone(name));
        if let (None, Some(given)) = (raw.requests_per_day, given) {
            checks.reject("requests_per_day_zone", &given, Rule::ZoneWithoutQuota);
        }
        let ((zone, schedule), requests) = (zone?, requests?);
        Some(Self { requests, zone, schedule })
    }

    /// Another number of requests, counted by this day.
    pub(crate) const fn with_requests(mut self, requests: NonZeroU32) -> Self {
        self.requests = requests;
        self
    }

    /// How many.
    pub(crate) const fn requests(&self) -> NonZeroU32 {
        self.requests
    }

    /// The time zone, as its database spells it.
    pub(crate) fn zone(&self) -> &str {
        &self.zone
    }

    /// The windows.
    pub(crate) const fn schedule(&self) -> &Schedule {
        &self.schedule
    }
}

/// A zone that there is, and its days. `Etc/Unknown` is found, but is not a zone.
fn zone(name: &str) -> Result<(String, Schedule), Rule> {
    let zone = TimeZone::get(name).map_err(|_| Rule::Zone)?;
    let name_in_database = zone.iana_name().ok_or(Rule::Zone)?;
    let schedule = Schedule::daily(name_in_database).map_err(|_| Rule::Zone)?;
    Ok((name_in_database.to_owned(), schedule))
}

#[cfg(test)]
mod tests {
    use tidegate_core::WallTime;

    use super::*;

    #[test]
    fn a_day_ends_at_midnight_of_its_zone() {
        let (name_in_database, schedule) = zone("america/los_angeles").unwrap();
        assert_eq!(name_in_database, "America/Los_Angeles");
        // 2026-11-16T07:59:59Z is a second before midnight in Los Angeles.
        let wall = WallTime::from_secs(1_794_815_999);
        assert_eq!(schedule.windows(wall).end_of(wall), Some(1_794_816_000));
    }
}
