//! Writes all stand-ins into a folder: `stand_ins TOOLKIT FOLDER`.

use std::path::Path;

use radrm_emulator_facade::{Error, Toolkit, write_all};

fn main() -> Result<(), Error> {
    let mut words = std::env::args().skip(1);
    let (Some(toolkit), Some(folder)) = (words.next(), words.next()) else {
        eprintln!("stand_ins TOOLKIT FOLDER");
        std::process::exit(2);
    };
    for file in write_all(&Toolkit::read(Path::new(&toolkit))?, Path::new(&folder))? {
        println!("{}", file.display());
    }
    Ok(())
}
