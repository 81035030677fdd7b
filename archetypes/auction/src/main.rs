//! `cargo run -p auction` tells the story; `-- --help` lists the rest.

fn main() -> std::process::ExitCode {
    walkthrough::main(auction::archetype())
}
