//! `cargo run -p matching` tells the story; `-- --help` lists the rest.

fn main() -> std::process::ExitCode {
    walkthrough::main(matching::archetype())
}
