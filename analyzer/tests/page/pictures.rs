//! The pictures of the documentation are what a browser shows of the page today.
//!
//! They are screenshots of a made-up run. Each is compared with a new one by the mean colours of small squares, so that other
//! edges of letters are no difference, and other colours, charts or a missing part are. Where a change is meant:
//! `RADRM_PICTURES=1 cargo nextest run --workspace -E "test(pictures_of_the_documentation)"` takes them anew.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Cursor};
use std::path::{Path, PathBuf};

use radrm_analyzer::{Summary, html};
use radrm_preload_tests::browser::Browser;
use radrm_profile::Bytes;
use radrm_profile::model::*;

use super::{full, written};

/// Width and height of each.
const SIZE: (u32, u32) = (1000, 720);
/// Side of a square.
const SQUARE: usize = 20;
/// By how much the mean of a colour may differ in a square, of 255.
const TOLERANCE: f64 = 26.0;
/// Share of the squares that may differ by more: machines have other fonts.
const STRAY: f64 = 0.05;
/// Colours of a file.
const COLOURS: usize = 48;
/// Bytes of all files together.
const MAX_BYTES: u64 = 150 << 10;

/// Scripts that cut the page down to one of its parts.
const PARTS: [(&str, &str); 3] = [
    ("page", ""),
    (
        "flames",
        "const gpu = document.querySelector('#gpu-0');
         for (const part of [...gpu.children])
             if (!part.matches('h2, .stacks') || part.querySelector('[data-graph=\"0\"]')) part.remove();
         document.querySelector('main').replaceChildren(gpu);",
    ),
    (
        "lines",
        "const by = document.querySelector('[name=by]'), gpu = document.querySelector('#gpu-0');
         by.value = 'line';
         by.dispatchEvent(new Event('change', { bubbles: true }));
         for (const part of [...gpu.children])
             if (!part.matches('h2, .chart.memory, .key.memory, p.interval, .addresses')) part.remove();
         document.querySelector('main').replaceChildren(gpu);",
    ),
];

fn pictures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/pictures")
}

/// A run with tensors too.
fn pictured() -> Profile {
    let mut profile = full();
    let code = |file: &str, name: &str| StackCode { file: file.into(), name: name.into() };
    let module = |path: &str| TensorModule { model: "GPT".into(), path: path.into() };
    let holder = |category, module, frames: &[(u32, u32)], mib| TensorHolder {
        category,
        module,
        frames: frames.to_vec(),
        bytes: Bytes::from_mib(mib),
        blocks: 12,
        ..TensorHolder::default()
    };
    use TensorCategory::{Activations, Gradients, OptimizerState, Parameters};
    let gpu = GpuTensors {
        gpu: GpuIndex(0),
        allocated: Bytes::from_mib(5480),
        cached: Bytes::from_mib(420),
        codes: vec![
            code("/home/ada/gpt/train.py", "<module>"),
            code("/home/ada/gpt/model.py", "forward"),
            code("/home/ada/gpt/train.py", "step"),
            code("/home/ada/gpt/model.py", "attention"),
        ],
        modules: vec![
            module("blocks.0.attention"),
            module("blocks.0.mlp"),
            module("blocks.1.mlp"),
            module("head"),
        ],
        holders: vec![
            holder(Activations, Some(1), &[(1, 41), (2, 60), (0, 92)], 1300),
            holder(Activations, Some(0), &[(3, 23), (1, 40), (2, 60), (0, 92)], 900),
            holder(Activations, Some(2), &[(1, 41), (2, 60), (0, 92)], 700),
            holder(OptimizerState, Some(1), &[(2, 64), (0, 92)], 800),
            holder(OptimizerState, Some(3), &[(2, 64), (0, 92)], 400),
            holder(Parameters, Some(1), &[(0, 77)], 400),
            holder(Parameters, Some(3), &[(0, 77)], 200),
            holder(Gradients, Some(1), &[(2, 62), (0, 92)], 580),
            holder(Gradients, Some(3), &[(2, 62), (0, 92)], 200),
        ],
        ..GpuTensors::default()
    };
    let key = profile.processes[0].key;
    let tensors = Tensors { key, framework: "PyTorch 2.15".into(), gpus: vec![gpu], ..Tensors::default() };
    profile.processes[0].tensors = Some(tensors);
    profile
}

/// Rows of pixels, each red, green and blue.
type Pixels = Vec<Vec<[u8; 3]>>;

/// A picture of a part of the page.
fn shot(browser: &mut Browser, url: &str, theme: &str, part: &str) -> Pixels {
    browser.open(url, SIZE);
    browser.value(&format!("document.documentElement.dataset.theme = '{theme}'; {{ {part} }}"));
    decode(&browser.picture())
}

fn read(path: &Path) -> Pixels {
    decode(&std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display())))
}

fn decode(png: &[u8]) -> Pixels {
    let mut decoder = png::Decoder::new(Cursor::new(png));
    decoder.set_transformations(png::Transformations::EXPAND | png::Transformations::STRIP_16);
    let mut reader = decoder.read_info().expect("a PNG");
    let mut bytes = vec![0; reader.output_buffer_size().expect("its size")];
    let info = reader.next_frame(&mut bytes).expect("a picture");
    let samples = info.color_type.samples();
    let row = |row: &[u8]| row.chunks_exact(samples).map(|pixel| [pixel[0], pixel[1], pixel[2]]).collect();
    bytes.chunks_exact(info.line_size).take(info.height as usize).map(row).collect()
}

/// Writes a picture with its most frequent colours.
fn write(path: &Path, pixels: &Pixels) {
    let mut counts = BTreeMap::<[u8; 3], usize>::new();
    for pixel in pixels.iter().flatten() {
        *counts.entry(*pixel).or_default() += 1;
    }
    let mut colours: Vec<([u8; 3], usize)> = counts.iter().map(|(colour, count)| (*colour, *count)).collect();
    colours.sort_by_key(|(colour, count)| (std::cmp::Reverse(*count), *colour));
    colours.truncate(COLOURS);
    let distance = |a: [u8; 3], b: [u8; 3]| -> u32 {
        a.iter().zip(b).map(|(a, b)| u32::from(a.abs_diff(b)).pow(2)).sum()
    };
    let nearest = |colour: [u8; 3]| (0..colours.len()).min_by_key(|at| distance(colours[*at].0, colour));
    let numbers: BTreeMap<[u8; 3], u8> =
        counts.keys().map(|colour| (*colour, nearest(*colour).expect("a colour") as u8)).collect();
    let file = BufWriter::new(File::create(path).expect("a file"));
    let mut encoder = png::Encoder::new(file, pixels[0].len() as u32, pixels.len() as u32);
    encoder.set_color(png::ColorType::Indexed);
    encoder.set_palette(colours.iter().flat_map(|(colour, _)| *colour).collect::<Vec<_>>());
    encoder.set_compression(png::Compression::High);
    encoder.set_filter(png::Filter::NoFilter);
    let bytes: Vec<u8> = pixels.iter().flatten().map(|pixel| numbers[pixel]).collect();
    encoder.write_header().expect("a head").write_image_data(&bytes).expect("pixels");
}

/// Mean colours of squares, row by row.
fn squares(pixels: &Pixels) -> Vec<[f64; 3]> {
    let mut means = Vec::new();
    for rows in pixels.chunks(SQUARE) {
        for at in (0..rows[0].len()).step_by(SQUARE) {
            let square: Vec<[u8; 3]> =
                rows.iter().flat_map(|row| row[at..].iter().take(SQUARE)).copied().collect();
            means.push([0, 1, 2].map(|part| {
                square.iter().map(|pixel| f64::from(pixel[part])).sum::<f64>() / square.len() as f64
            }));
        }
    }
    means
}

/// Share of the squares that differ; all of them where the sizes do.
fn difference(a: &Pixels, b: &Pixels) -> f64 {
    if (a.len(), a[0].len()) != (b.len(), b[0].len()) {
        return 1.0;
    }
    let (a, b) = (squares(a), squares(b));
    let differs = |(a, b): &(&[f64; 3], &[f64; 3])| a.iter().zip(*b).any(|(a, b)| (a - b).abs() > TOLERANCE);
    a.iter().zip(&b).filter(differs).count() as f64 / a.len() as f64
}

#[test]
fn pictures_of_the_documentation_are_what_a_browser_shows() {
    let Some(mut browser) = Browser::start() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let profile = pictured();
    let url = written(folder.path(), &html(&profile, &Summary::from_profile(&profile)));
    let is_asked = std::env::var_os("RADRM_PICTURES").is_some();
    let mut taken = BTreeMap::new();
    for theme in ["light", "dark"] {
        // One theme of the last: the others show both.
        for (name, part) in PARTS.into_iter().filter(|(name, _)| theme == "light" || *name != "lines") {
            let shot = shot(&mut browser, &url, theme, part);
            let file = format!("{name}-{theme}.png");
            if is_asked {
                std::fs::create_dir_all(pictures()).expect("a folder");
                write(&pictures().join(&file), &shot);
            }
            let found = difference(&read(&pictures().join(&file)), &shot);
            println!("{file}: {:.2} % of the squares differ", 100.0 * found);
            assert!(found <= STRAY, "{file} differs in {:.1} % of its squares", 100.0 * found);
            taken.insert(file, shot);
        }
    }
    // What is compared tells pictures apart.
    let of = |file: &str| &taken[file];
    for (one, other) in [("page-light.png", "page-dark.png"), ("page-light.png", "flames-light.png")] {
        let found = difference(of(one), of(other));
        assert!(found > 4.0 * STRAY, "{one} and {other} differ in {:.1} % only", 100.0 * found);
    }
    let bytes = |file: &String| std::fs::metadata(pictures().join(file)).expect("a file").len();
    assert!(taken.keys().map(bytes).sum::<u64>() <= MAX_BYTES, "the pictures are too large");
}
