//! Checks that every combination of features of every crate compiles.

use anyhow::Result;

use crate::process;
use crate::project;

/// With more features, only none, each feature alone, and all are checked.
const MAX_FEATURES: usize = 5;

/// Checks every combination for every member that has features.
pub(crate) fn check(extra: &[&str]) -> Result<()> {
    let metadata = project::metadata()?;
    for package in metadata.workspace_packages() {
        let features: Vec<&str> =
            package.features.keys().map(String::as_str).filter(|name| *name != "default").collect();
        if features.is_empty() {
            continue;
        }
        if features.len() > MAX_FEATURES {
            println!(
                "{}: {} features are too many for all combinations; checking none, each and all",
                package.name,
                features.len()
            );
        }
        for set in combinations(&features) {
            let list = set.join(",");
            let mut command = process::cargo(["check", "--quiet", "--no-default-features"]);
            command.args(extra).args(["--package", package.name.as_str(), "--features", &list]);
            println!("{} with [{list}]", package.name);
            process::run(command)?;
        }
    }
    Ok(())
}

/// Returns all subsets of a few names; of many names, the empty set, each name alone, and all.
fn combinations<'a>(names: &[&'a str]) -> Vec<Vec<&'a str>> {
    if names.len() > MAX_FEATURES {
        let mut sets = vec![Vec::new()];
        sets.extend(names.iter().map(|name| vec![*name]));
        sets.push(names.to_vec());
        return sets;
    }
    let member = |set: usize, index: usize| set & (1 << index) != 0;
    (0..1_usize << names.len())
        .map(|set| {
            let chosen = names.iter().enumerate().filter(|(index, _)| member(set, *index));
            chosen.map(|(_, name)| *name).collect()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_features_give_the_power_set() {
        assert_eq!(
            combinations(&["a", "b"]),
            [vec![], vec!["a"], vec!["b"], vec!["a", "b"]] as [Vec<&str>; 4]
        );
        assert_eq!(combinations(&["a", "b", "c", "d", "e"]).len(), 32);
    }

    #[test]
    fn many_features_give_none_each_and_all() {
        let sets = combinations(&["a", "b", "c", "d", "e", "f"]);
        assert_eq!(sets.len(), 8);
        assert_eq!((sets[0].len(), sets[1].len(), sets[7].len()), (0, 1, 6));
    }
}
