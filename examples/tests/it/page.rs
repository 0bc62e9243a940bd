//! Pages that show programs of these tests.

/// Asserts that the code blocks of a page are these programs, in this order. The first line of a
/// program is not shown.
pub(crate) fn assert_shows(name: &str, page: &str, programs: &[(&str, &str)]) {
    let parts = page.split("```rust\n").skip(1);
    let blocks: Vec<&str> = parts.filter_map(|part| Some(part.split_once("```")?.0)).collect();
    assert_eq!(blocks.len(), programs.len(), "code blocks of {name}");
    for (block, (path, program)) in blocks.into_iter().zip(programs) {
        let shown = program.split_once("\n\n").map(|(_, below)| below);
        assert_eq!(
            Some(block),
            shown,
            "{name} does not show examples/tests/it/{path}: copy what is below its first line into \
             the code block"
        );
    }
}

/// Returns the first code block of a page in a language.
pub(crate) fn shown_block<'p>(page: &'p str, language: &str) -> &'p str {
    let (_, block) = page.split_once(&format!("```{language}\n")).unwrap();
    block.split_once("```").unwrap().0
}
