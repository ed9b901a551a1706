//! A script without options.

use super::{Form, RadError, RadFile, Run, wrong};

/// Returns true if the text declares itself a script.
pub(super) fn is_script(text: &str) -> bool {
    text.starts_with("#!")
}

pub(super) fn parse(text: &str) -> Result<RadFile, RadError> {
    if text.lines().map(str::trim).all(|line| line.is_empty() || line.starts_with('#')) {
        return wrong(text.lines().count().max(1), "there is no command in this script");
    }
    Ok(RadFile::new(Form::Plain, Run::Script { text: text.to_owned() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_of_a_script_is_run() {
        for text in [
            "#!/bin/bash\npython3 train.py\n",
            "#!/bin/bash\n# train my model\npython3 hold.py 0 1\n",
            "#!/bin/bash\nset -e\necho prepare\necho train\necho eval\n",
            "#!/bin/sh\ncd /data\n./train\nmodel.txt\n",
            "#!/bin/bash\na\nb\nc\nd\ne\nf\ng\nh\ni\nj\nk\nl\nm\nn\n",
        ] {
            let file = RadFile::parse(text).unwrap();
            assert_eq!((file.form, file.run), (Form::Plain, Run::Script { text: text.into() }));
            assert_eq!((file.gpus, file.exclusive, file.measured), (1, false, None));
        }
        let error = RadFile::parse("#!/bin/bash\n\n# nothing\n").unwrap_err();
        assert_eq!(error.to_string(), "line 3: there is no command in this script");
    }
}
