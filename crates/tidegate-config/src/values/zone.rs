//! Canonical names of time zones, so that `utc`, `UTC` and `Etc/UTC` are the same zone.

use jiff::Timestamp;
use jiff::tz::{Offset, TimeZone};
use tidegate::ScheduleError;

use crate::violation::Rule;

pub(crate) const UTC: &str = "UTC";

/// Returns the name of a zone as spelled in the time zone database. Every zone that never differs
/// from UTC becomes `UTC`.
///
/// Other links, such as `US/Pacific` to `America/Los_Angeles`, are not resolved, because the
/// compiled zone data does not contain them.
pub(crate) fn canonical_zone(name: &str) -> Result<String, Rule> {
    let unknown = || ScheduleError::UnknownZone(name.to_owned());
    let zone = TimeZone::get(name).map_err(|_| unknown())?;
    // `Etc/Unknown` is in the database but is not a zone.
    let spelled = zone.iana_name().ok_or_else(unknown)?;
    Ok(if is_utc(&zone) { UTC } else { spelled }.to_owned())
}

fn is_utc(zone: &TimeZone) -> bool {
    let constant = zone.following(Timestamp::MIN).next().is_none();
    constant && zone.to_offset(Timestamp::UNIX_EPOCH) == Offset::UTC
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn utc_aliases_have_one_name() {
        for alias in [
            "UTC",
            "utc",
            "Utc",
            "Etc/UTC",
            "etc/utc",
            "Zulu",
            "Etc/Zulu",
            "Universal",
            "Etc/Universal",
            "UCT",
            "Etc/UCT",
            "GMT",
            "Etc/GMT+0",
            "Greenwich",
        ] {
            assert_eq!(canonical_zone(alias).unwrap(), "UTC", "{alias}");
        }
        for name in ["America/Los_Angeles", "Europe/London", "Africa/Abidjan", "Etc/GMT+5"] {
            assert_eq!(canonical_zone(name).unwrap(), name);
            assert_eq!(canonical_zone(&name.to_lowercase()).unwrap(), name);
            assert_eq!(canonical_zone(&name.to_uppercase()).unwrap(), name);
        }
        for name in ["", "Mars/Olympus", "Etc/Unknown", "UTC ", "UTC0", "+00:00", "../UTC"] {
            let rule = "is not a time zone: use an IANA name such as UTC or America/Los_Angeles";
            let expected = format!("{name:?} {rule}");
            assert_eq!(canonical_zone(name).unwrap_err().to_string(), expected);
        }
    }
}
