//! Files that people write: `.rad` files, scripts, configuration of limits, summaries of models.

use std::path::Path;

use bolero::check;
use radrm_fuzz::text;
use radrm_need::ModelSummary;
use radrm_scheduler_core::rad_file::RadFile;

const RADS: [&str; 4] = [
    "#!/bin/bash\n#RADRM --gpus=2 --gpu-mem=12GiB --name=\"a b\"\n#RADRM --time 1:00:00\npython3 train.py\n",
    "# comment\nconda activate env\npython3 train.py --batch 32\nmodel: resnet.py\nbatch_size: 32\npolicy: collocation\n",
    "comment\nconda activate env\npython3 train.py\nresnet.py\ncifar\n32\nexclusive\n1\n4000\n5000\n6000\n7000\n",
    "#!/bin/sh\n#SBATCH --gres=gpu:1\nsrun python3 train.py\n",
];

const LIMITS: &str = "[default]\nmem_limit = \"10GiB\"\n[user.ann]\nmem_limit = \"50%\"\n[group.lab]\nmem_limit_each = \"0=4GiB\"\n\
    [job]\nmem_limit_max = \"20GiB\"\nprofile_mode = \"0644\"\n[mps]\nenable = true\nactive_thread_percentage = 50\n";

#[test]
fn rad_files() {
    check!().with_max_len(64).for_each(|bytes: &[u8]| {
        let text = text(&RADS, bytes);
        match RadFile::parse(&text) {
            Err(error) => assert!(error.line >= 1, "{error}"),
            Ok(file) => assert!(!file.options.iter().any(|option| format!("{option:?}").contains('\0'))),
        }
    });
}

#[test]
fn toml_of_limits() {
    check!().with_max_len(64).for_each(|bytes: &[u8]| {
        let text = text(&[LIMITS], bytes);
        if let Err(error) = radrm_limits::config::parse(Path::new("radrm.toml"), &text) {
            let sentence = error.to_string();
            assert_eq!(radrm_text::printable(&sentence), sentence, "{text:?}");
        }
        let _ = toml::from_str::<toml::Table>(&text);
    });
}

#[test]
fn amounts() {
    check!().with_max_len(32).for_each(|bytes: &[u8]| {
        let word = text(&["10GiB", "50%", "4096m", "1.5T"], bytes);
        let _ = radrm_limits::amount::parse(&word);
        let _ = radrm_limits::amount::hami_bytes(&word);
        let _ = radrm_limits::amount::toolkit_bytes(&word);
        let _ = radrm_limits::amount::host_bytes(&word);
    });
}

#[test]
fn summaries_of_models() {
    let json = r#"{"parameters": 25557032, "activations": [1, 2], "layers": [{"kind": "conv", "parameters": 9408}]}"#;
    check!().with_max_len(64).for_each(|bytes: &[u8]| {
        let _ = ModelSummary::parse(&text(&[json], bytes));
    });
}
