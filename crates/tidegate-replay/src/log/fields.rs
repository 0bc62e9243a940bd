//! Names of the fields of JSON and CSV logs.

/// Usual names of the time, most telling first.
const TIME: &[&str] = &["time", "timestamp", "ts", "@timestamp", "datetime", "date"];
/// Usual names of the key.
const KEY: &[&str] = &[
    "key",
    "client",
    "client_ip",
    "remote_addr",
    "remote_ip",
    "request.client_ip",
    "request.remote_ip",
    "ip",
    "address",
    "user",
];
/// Usual names of the cost.
const COST: &[&str] = &["cost", "tokens"];

/// Names of the fields that are read, in order of preference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FieldNames {
    /// For time, key and cost.
    pub(crate) names: [Vec<String>; 3],
}

impl FieldNames {
    /// Uses the given names, and the usual ones where there is none.
    pub(crate) fn new(time: Option<&str>, key: Option<&str>, cost: Option<&str>) -> Self {
        let names = |given: Option<&str>, usual: &[&str]| match given {
            Some(name) => vec![name.to_owned()],
            None => usual.iter().map(|&name| name.to_owned()).collect(),
        };
        Self { names: [names(time, TIME), names(key, KEY), names(cost, COST)] }
    }
}
