//! `cargo run -p file-sync` tells the story; `-- --help` lists the rest.

fn main() -> std::process::ExitCode {
    walkthrough::main(file_sync::archetype())
}
