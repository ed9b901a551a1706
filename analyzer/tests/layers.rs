//! Summaries of profiles do not depend on the views.

use std::fs;
use std::path::Path;

fn sources(folder: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else {
            found.push(fs::read_to_string(path).unwrap());
        }
    }
}

#[test]
fn the_model_does_not_use_the_view() {
    let mut model = Vec::new();
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src/model"), &mut model);
    assert!(model.len() > 10);
    let code = model.iter().flat_map(|text| text.lines()).filter(|line| !line.trim_start().starts_with("//"));
    // The type of a text that a program chose, which cannot be printed as it is, is no view.
    let is_view = |line: &&str| {
        line.contains("view::") || line.replace("radrm_text::Untrusted", "").contains("radrm_text")
    };
    let uses: Vec<&str> = code.filter(is_view).collect();
    assert_eq!(uses, Vec::<&str>::new());
}
