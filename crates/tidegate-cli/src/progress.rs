//! Progress bars on standard error. Nothing is drawn if that is not a terminal.

use std::io::Read;

use indicatif::{ProgressBar, ProgressFinish, ProgressStyle};
use tidegate_replay::Progress;

/// Wraps a log, so that a bar shows how much of it has been read. `bytes` is its length, if known.
pub(crate) fn reading<R: Read>(name: &str, source: R, bytes: Option<u64>) -> impl Read + use<R> {
    let bar = match bytes {
        Some(bytes) => {
            bar(bytes, "{msg} {bar:30} {bytes}/{total_bytes} {binary_bytes_per_sec} ETA {eta}")
        }
        None => ProgressBar::no_length()
            .with_style(style("{msg} {bytes} {binary_bytes_per_sec} {elapsed}")),
    };
    bar.set_message(name.to_owned());
    bar.with_finish(ProgressFinish::AndClear).wrap_read(source)
}

/// A bar for passes over a spooled log.
#[derive(Debug)]
pub(crate) struct PassBar(ProgressBar);

impl PassBar {
    pub(crate) fn new() -> Self {
        Self(ProgressBar::hidden())
    }
}

impl Progress for PassBar {
    fn start(&mut self, what: &str, events: u64) {
        self.0.finish_and_clear();
        self.0 = bar(events, "{msg} {bar:30} {pos}/{len} {per_sec} ETA {eta}");
        self.0.set_message(what.to_owned());
    }

    fn advance(&mut self, events: u64) {
        self.0.inc(events);
    }
}

impl Drop for PassBar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

fn bar(length: u64, template: &str) -> ProgressBar {
    ProgressBar::new(length).with_style(style(template))
}

/// Returns the style of a template, or the default one if the template is wrong.
fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}
