//! Requests per day: a quota that resets at midnight in the provider's time zone.

use std::num::NonZeroU32;

use jiff::tz::TimeZone;
use tidegate::Schedule;

use super::raw::RawConstraint;
use super::violation::{Checks, Rule, rate};

/// Requests per calendar day of a time zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Daily {
    requests: NonZeroU32,
    zone: String,
    schedule: Schedule,
}

impl Daily {
    /// Parses the daily quota. A time zone without a quota is a violation.
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

    /// Replaces the number of requests and keeps the time zone.
    pub(crate) const fn with_requests(mut self, requests: NonZeroU32) -> Self {
        self.requests = requests;
        self
    }

    pub(crate) const fn requests(&self) -> NonZeroU32 {
        self.requests
    }

    /// Returns the IANA name of the time zone.
    pub(crate) fn zone(&self) -> &str {
        &self.zone
    }

    pub(crate) const fn schedule(&self) -> &Schedule {
        &self.schedule
    }
}

/// Returns the IANA name of a time zone and its daily schedule. `Etc/Unknown` is found but has no
/// name.
fn zone(name: &str) -> Result<(String, Schedule), Rule> {
    let zone = TimeZone::get(name).map_err(|_| Rule::Zone)?;
    let iana_name = zone.iana_name().ok_or(Rule::Zone)?;
    let schedule = Schedule::daily(iana_name).map_err(|_| Rule::Zone)?;
    Ok((iana_name.to_owned(), schedule))
}

#[cfg(test)]
mod tests {
    use tidegate_core::WallTime;

    use super::*;

    #[test]
    fn day_ends_at_midnight_of_its_zone() {
        let (iana_name, schedule) = zone("america/los_angeles").unwrap();
        assert_eq!(iana_name, "America/Los_Angeles");
        // 2026-11-16T07:59:59Z is a second before midnight in Los Angeles.
        let wall = WallTime::from_secs(1_794_815_999);
        assert_eq!(schedule.windows(wall).end_of(wall), Some(1_794_816_000));
    }
}
