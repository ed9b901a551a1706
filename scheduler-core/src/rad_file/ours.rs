//! Our form: a script whose comments hold options.

use super::{Form, RadError, RadFile, RadOption, Run, wrong};

const MARK: &str = "#RADRM";

pub(super) fn is_key_line(line: &str) -> bool {
    line.trim_start().strip_prefix(MARK).is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t']))
}

pub(super) fn parse(text: &str) -> Result<RadFile, RadError> {
    let mut file = RadFile::new(Form::Ours, Run::Script { text: text.to_owned() });
    let mut commands = false;
    for (at, line) in text.lines().enumerate() {
        let at = at + 1;
        if !is_key_line(line) {
            let line = line.trim();
            commands |= !line.is_empty() && !line.starts_with('#');
            continue;
        }
        // An option that is overlooked is worse than one that is refused.
        if commands {
            return wrong(at, format!("{MARK} lines stand before the first command"));
        }
        let options = line.trim_start().strip_prefix(MARK).unwrap_or_default();
        for word in options.split_whitespace() {
            // The rest of the line is a comment.
            if word.starts_with('#') {
                break;
            }
            if word.strip_prefix("--").is_none_or(|rest| rest.is_empty() || rest.starts_with('=')) {
                return wrong(at, format!("`{word}` is no option such as --gpus=2"));
            }
            let option = RadOption { line: at, word: word.to_owned() };
            if file.options.iter().any(|before| before.name() == option.name()) {
                return wrong(at, format!("{} stands there twice", option.name()));
            }
            file.options.push(option);
        }
    }
    if !commands {
        return wrong(text.lines().count().max(1), "there is no command after the options");
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_a_script_are_found() {
        let text = "#!/bin/bash\n#RADRM --name=train --gpus=2 # of one kind --x\n# plain comment\n\n\
            #RADRM --exclusive\nsource env/bin/activate\npython3 train.py\n";
        let file = RadFile::parse(text).unwrap();
        let found: Vec<_> = file.options.iter().map(|option| (option.line, option.word.as_str())).collect();
        assert_eq!(found, [(2, "--name=train"), (2, "--gpus=2"), (5, "--exclusive")]);
        assert_eq!((file.form, file.options[1].name()), (Form::Ours, "--gpus"));
        assert_eq!(file.run, Run::Script { text: text.into() });
    }

    #[test]
    fn what_can_be_no_option_is_refused() {
        for (text, expected) in [
            ("#RADRM gpus=1\nrun", "line 1: `gpus=1` is no option such as --gpus=2"),
            ("#RADRM --\nrun", "line 1: `--` is no option such as --gpus=2"),
            ("#RADRM --gpus=1\n#RADRM --gpus=2\nrun", "line 2: --gpus stands there twice"),
            (
                "#RADRM --gpus=1\nrun\n#RADRM --priority=1",
                "line 3: #RADRM lines stand before the first command",
            ),
            ("#RADRM --gpus=1\n", "line 1: there is no command after the options"),
        ] {
            assert_eq!(RadFile::parse(text).unwrap_err().to_string(), expected);
        }
    }
}
