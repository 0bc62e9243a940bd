//! Samples of the Prometheus text format, as far as `/metrics` of this program uses it.

/// A sample: a metric name, its labels and its value.
#[derive(Debug, PartialEq)]
pub(super) struct Sample<'t> {
    name: &'t str,
    labels: Vec<(&'t str, String)>,
    pub(super) value: f64,
}

impl Sample<'_> {
    /// The value of a label; empty if the sample does not have it.
    pub(super) fn label(&self, name: &str) -> &str {
        let found = self.labels.iter().find(|(label, _)| *label == name);
        found.map_or("", |(_, value)| value)
    }
}

/// All samples of a text.
pub(super) struct Samples<'t>(Vec<Sample<'t>>);

impl<'t> Samples<'t> {
    /// Reads samples. Comments and lines in other forms are skipped.
    pub(super) fn read(text: &'t str) -> Self {
        Self(text.lines().filter(|line| !line.starts_with('#')).filter_map(sample).collect())
    }

    /// The samples of a metric.
    pub(super) fn of(&self, name: &str) -> impl Iterator<Item = &Sample<'t>> {
        self.0.iter().filter(move |sample| sample.name == name)
    }

    /// The sum of the samples of a metric with this label; `None` if there are none.
    pub(super) fn sum(&self, name: &str, label: (&str, &str)) -> Option<f64> {
        let found = self.of(name).filter(|sample| sample.label(label.0) == label.1);
        found.map(|sample| sample.value).reduce(|sum, value| sum + value)
    }

    /// The value of a metric without labels.
    pub(super) fn value(&self, name: &str) -> Option<f64> {
        self.of(name).map(|sample| sample.value).next()
    }
}

fn sample(line: &str) -> Option<Sample<'_>> {
    let Some((name, rest)) = line.split_once('{') else {
        let (name, value) = line.split_once(' ')?;
        return Some(Sample { name, labels: Vec::new(), value: value.trim().parse().ok()? });
    };
    let (mut labels, mut rest) = (Vec::new(), rest);
    while !rest.starts_with('}') {
        let (label, text) = rest.trim_start_matches(',').split_once("=\"")?;
        let (value, after) = quoted(text)?;
        labels.push((label, value));
        rest = after;
    }
    let value = rest.strip_prefix('}')?.trim().parse().ok()?;
    Some(Sample { name, labels, value })
}

/// Reads a label value up to its closing quote, and returns what follows.
fn quoted(text: &str) -> Option<(String, &str)> {
    let (mut value, mut letters) = (String::new(), text.char_indices());
    while let Some((index, letter)) = letters.next() {
        match letter {
            '"' => return Some((value, text.get(index + 1..)?)),
            '\\' => match letters.next()?.1 {
                'n' => value.push('\n'),
                other => value.push(other),
            },
            other => value.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_have_names_labels_and_values() {
        let text = "# TYPE a counter\na_total{limit=\"x\",door=\"http\"} 3\n\
                    a_total{limit=\"x\",door=\"grpc\"} 4\nb 2.5\n\
                    c{name=\"a \\\"b\\\", {c}\\\\\"} 1\nnot a sample\n";
        let samples = Samples::read(text);
        assert_eq!(samples.sum("a_total", ("limit", "x")), Some(7.0));
        assert_eq!(samples.sum("a_total", ("limit", "y")), None);
        assert_eq!(samples.value("b"), Some(2.5));
        let named = samples.of("c").next().unwrap();
        assert_eq!((named.label("name"), named.label("other")), ("a \"b\", {c}\\", ""));
        assert_eq!(samples.0.len(), 4);
    }
}
