_dliosim_patterns() {
    compgen -W "NAMES" -- "$1"
    compgen -f -X '!*.dlio' -- "$1"
    compgen -d -S / -- "$1"
}
