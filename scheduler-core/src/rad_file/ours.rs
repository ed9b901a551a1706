//! Our form: a script whose comments hold keys.

use super::{Form, RadError, RadFile, Run, value, wrong};
use crate::units::Bytes;

const MARK: &str = "#RADRM";

pub(super) fn is_key_line(line: &str) -> bool {
    line.trim_start().strip_prefix(MARK).is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t']))
}

pub(super) fn parse(text: &str) -> Result<RadFile, RadError> {
    let mut file = RadFile::new(Form::Ours, Run::Script { text: text.to_owned() });
    let mut seen: Vec<&str> = Vec::new();
    let mut commands = false;
    for (at, line) in text.lines().enumerate() {
        let at = at + 1;
        if !is_key_line(line) {
            let line = line.trim();
            commands |= !line.is_empty() && !line.starts_with('#');
            continue;
        }
        // A key that is overlooked is worse than one that is refused.
        if commands {
            return wrong(at, format!("{MARK} lines stand before the first command"));
        }
        let keys = line.trim_start().strip_prefix(MARK).unwrap_or_default();
        for word in keys.split_whitespace() {
            // The rest of the line is a comment.
            if word.starts_with('#') {
                break;
            }
            let Some(word) = word.strip_prefix("--") else {
                return wrong(at, format!("\"{word}\" is no key such as --gpus=2"));
            };
            let (key, text) = word.split_once('=').map_or((word, None), |(key, text)| (key, Some(text)));
            if seen.contains(&key) {
                return wrong(at, format!("--{key} stands there twice"));
            }
            seen.push(key);
            set(&mut file, key, text).map_err(|what| RadError { line: at, what })?;
        }
    }
    if !commands {
        return wrong(text.lines().count().max(1), "there is no command after the keys");
    }
    Ok(file)
}

fn set(file: &mut RadFile, key: &str, text: Option<&str>) -> Result<(), String> {
    let flag = || text.map_or(Ok(true), |text| Err(format!("--{key} takes no value, and got \"{text}\"")));
    let value = || text.filter(|text| !text.is_empty()).ok_or_else(|| format!("--{key} needs a value"));
    let with = |what: String| format!("--{key}: {what}");
    let whole = |least: u64| -> Result<u64, String> {
        let text = value()?;
        match text.parse() {
            Ok(number) if number >= least => Ok(number),
            _ => Err(with(format!("\"{text}\" is no whole number from {least} on"))),
        }
    };
    let memory = || -> Result<Bytes, String> { value::memory(value()?).map_err(with) };
    match key {
        "name" => file.name = Some(value()?.to_owned()),
        "gpus" => {
            file.gpus = u16::try_from(whole(0)?).map_err(|_| with("that many GPUs are nowhere".into()))?
        }
        "gpu-mem" => file.measured = Some(memory()?),
        "gpu-mem-estimate" => {
            file.estimates.insert("user".into(), memory()?);
        }
        "gpu-model" => file.gpu_model = Some(value()?.to_owned()),
        "gpu-share" => file.share = Some(value::part(value()?).map_err(with)?),
        "exclusive" => file.exclusive = flag()?,
        "priority" => {
            file.priority = value()?
                .parse()
                .map_err(|_| with(format!("\"{}\" is no whole number", text.unwrap_or(""))))?;
        }
        "time" => file.time_limit = Some(value::time(value()?).map_err(with)?),
        "slot" => file.slot = Some(value::time(value()?).map_err(with)?),
        "checkpoint-signal" => file.checkpoint_signal = Some(value::signal(value()?).map_err(with)?),
        "grace" => file.grace = Some(value::time(value()?).map_err(with)?),
        "preemptible" => file.preemptible = flag()?,
        "cpus" => file.host.cpu_milli = whole(0)?.saturating_mul(1000),
        "mem" => file.host.memory = memory()?,
        "model-summary" => file.model = Some(value()?.to_owned()),
        "dataset" => file.dataset = Some(value()?.to_owned()),
        "batch-size" => {
            file.batch = Some(u32::try_from(whole(1)?).map_err(|_| with("that is too large".into()))?)
        }
        other => return Err(format!("there is no key --{other}")),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Need;
    use crate::units::{Millis, Permille};

    #[test]
    fn keys_of_a_script_are_read() {
        let text = "#!/bin/bash\n#RADRM --name=train --gpus=2 --gpu-mem=12GiB # per GPU\n# plain comment\n\
            #RADRM --time=2h --slot=30min --checkpoint-signal=USR1 --gpu-share=30% --exclusive\n\n\
            #RADRM --cpus=8 --mem=32GiB --batch-size=64 --priority=-3\nsource env/bin/activate\npython3 train.py\n";
        let file = RadFile::parse(text).unwrap();
        assert_eq!((file.form, file.gpus, file.batch, file.priority), (Form::Ours, 2, Some(64), -3));
        assert_eq!(file.need(""), Need::Measured(Bytes::from_gib(12)));
        assert_eq!((file.time_limit, file.slot), (Some(Millis::from_mins(120)), Some(Millis::from_mins(30))));
        assert_eq!(
            (file.checkpoint_signal, file.share, file.exclusive),
            (Some(10), Some(Permille(300)), true)
        );
        assert_eq!((file.host.cpu_milli, file.host.memory), (8000, Bytes::from_gib(32)));
        assert_eq!(file.run, Run::Script { text: text.into() });
    }

    #[test]
    fn a_key_that_cannot_be_meant_is_refused() {
        for (text, expected) in [
            ("#RADRM --gpu=1\nrun", "line 1: there is no key --gpu"),
            ("#RADRM gpus=1\nrun", "line 1: \"gpus=1\" is no key such as --gpus=2"),
            ("#RADRM --gpus\nrun", "line 1: --gpus needs a value"),
            ("#RADRM --exclusive=no\nrun", "line 1: --exclusive takes no value, and got \"no\""),
            ("#RADRM --gpus=1\n#RADRM --gpus=2\nrun", "line 2: --gpus stands there twice"),
            (
                "#RADRM --gpus=1\nrun\n#RADRM --priority=1",
                "line 3: #RADRM lines stand before the first command",
            ),
            ("#RADRM --gpus=1\n", "line 1: there is no command after the keys"),
            ("#RADRM --gpus=99999\nrun", "line 1: --gpus: that many GPUs are nowhere"),
        ] {
            assert_eq!(RadFile::parse(text).unwrap_err().to_string(), expected);
        }
        let gpu_mem = RadFile::parse("#RADRM --gpu-mem=12G\nrun").unwrap_err().to_string();
        assert!(gpu_mem.contains("can mean two things"), "{gpu_mem}");
    }
}
