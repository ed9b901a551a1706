//! Comments that look like options and are none of ours: to overlook them is worse than to refuse the file.

use super::ours::is_key_line;
use super::{RadError, wrong};

/// Prefixes of option lines of other batch systems.
const OTHERS: [&str; 3] = ["#SBATCH", "#PBS", "#BSUB"];

/// `# RADRM --gpus=2` and the like.
///
/// # Errors
/// The first such line.
pub(super) fn misspelt(text: &str) -> Result<(), RadError> {
    for (at, line) in text.lines().enumerate().filter(|(_, line)| !is_key_line(line)) {
        let Some(comment) = line.trim_start().strip_prefix('#') else { continue };
        let comment = comment.trim_start_matches('#').trim_start();
        if let (Some(word), Some(rest)) = (comment.get(..5), comment.get(5..))
            && word.eq_ignore_ascii_case("RADRM")
            && rest.trim_start_matches(':').trim_start().starts_with("--")
        {
            return wrong(at + 1, "options stand behind the word `#RADRM` and a blank: `#RADRM --gpus=2`");
        }
    }
    Ok(())
}

/// Options for another batch system, in a file that has none for us.
///
/// # Errors
/// The first such line.
pub(super) fn other_systems(text: &str) -> Result<(), RadError> {
    for (at, line) in text.lines().enumerate() {
        if let Some(mark) = OTHERS.iter().find(|mark| line.starts_with(*mark)) {
            return wrong(
                at + 1,
                format!(
                    "{mark} lines are not read: write what is wanted in lines such as \
                     `#RADRM --gpus=2 --gpu-mem=12GiB --time=4h`"
                ),
            );
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::RadFile;

    #[test]
    fn options_that_would_be_overlooked_are_refused() {
        for (text, expected) in [
            ("#!/bin/bash\n# RADRM --gpus=2\nrun\n", "line 2: options stand behind"),
            ("#!/bin/bash\n#radrm --gpus=2\nrun\n", "line 2: options stand behind"),
            ("#RADRM --gpus=2\n## RADRM: --time=1h\nrun\n", "line 2: options stand behind"),
            ("#RADRM--gpus=2\nrun\n", "line 1: options stand behind"),
            ("#!/bin/bash\n#SBATCH --gres=gpu:2\nrun\n", "line 2: #SBATCH lines are not read"),
            ("# job\n#PBS -l select=1\nrun\n", "line 2: #PBS lines are not read"),
        ] {
            let error = RadFile::parse(text).unwrap_err().to_string();
            assert!(error.starts_with(expected) && error.lines().count() == 1, "{text}: {error}");
        }
        // A script for two systems says so itself, and a comment may tell how it is submitted.
        for text in [
            "#!/bin/bash\n#SBATCH --gres=gpu:2\n#RADRM --gpus=2\nrun\n",
            "#!/bin/bash\n# radrm submit --gpus 2 -- bash a.sh\nrun\n",
            "#!/bin/bash\n# RADRM ünd\nrun\n",
        ] {
            RadFile::parse(text).unwrap();
        }
    }
}
